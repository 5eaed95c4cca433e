"""What is written to a table reads back as it was, and strangers' attributes do no harm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import tallies
from tests.support.dynamodb.usage_rows import updated
from zae_limiter.admission.tally import NO_TALLY, Refusals, Tally
from zae_limiter.admission.usage import HourUsage, total_of
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.dynamodb.expressions import text as text_of
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import (
    audit,
    config_writes,
    configs,
    entities,
    system,
)
from zae_limiter.items.stored.attributes import decode_document, n, s
from zae_limiter.items.stored.keys import BucketId, ShardId
from zae_limiter.items.stored.usage import day_row
from zae_limiter.items.stored.usage import hours as item_hours
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import KEEP, ConfigLevel, LevelChange, LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter.refusal import LimitedBy

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() != "wcu"
)
amounts = st.integers(1, 10**15)
limits = st.builds(Limit, names, amounts, amounts, st.integers(1, 10**9))
levels = st.lists(limits, min_size=1, max_size=32, unique_by=lambda limit: limit.name)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


def stranger(item):
    """The same item with an attribute that another version wrote."""
    return {**item, "written_by_a_later_version": s("x")}


def is_plain(item):
    """Every attribute is a string, a number or a flag, as JSON holds it."""
    json.dumps(item)
    return all(set(value) <= {"S", "N", "BOOL"} for value in item.values())


@given(levels, st.sampled_from([("user", "api"), ("user", "_default_"), ("", "api")]))
def test_limits_read_back_in_their_order(stored, whose):
    config = LevelConfig(tuple(stored))
    item = config_writes.encode("ns", ConfigLevel(*whose), config, "r")
    assert is_plain(item)
    assert configs.decode(stranger(item)) == config
    assert configs.is_configured(item)


def test_a_mode_is_two_attributes_of_its_level():
    switch = Switch(SwitchMode.DENY, 1_767_225_600_123)
    config = LevelConfig((Limit("rpm", 1, 2, 3),), switch=switch)
    item = config_writes.encode("ns", ConfigLevel("user", "api"), config, "r")
    assert (item["mode"], item["mode_until"]) == (s("deny"), n(1_767_225_600_123))
    assert configs.decode(stranger(item)) == config
    alone = LevelConfig((), switch=Switch(SwitchMode.SHADOW))
    item = config_writes.encode("ns", ConfigLevel("", "api"), alone, "r")
    assert (item["mode"], "mode_until" in item) == (s("shadow"), False)
    assert configs.decode(item) == alone
    assert configs.is_configured(item)


def test_an_item_with_nothing_but_a_version_holds_no_limits():
    item = {"PK": s("ns/SYSTEM#"), "SK": s("#CONFIG"), "config_version": n(7)}
    assert configs.decode(item) is None
    assert configs.decode_version(item) == 7
    assert not configs.is_configured(item)
    assert (configs.decode(None), configs.decode_version(None)) == (None, 0)


@pytest.mark.parametrize("name", ["a_cp", "l_", "cp", "a_cp_ra", "rev", "a.b-c"])
def test_limits_may_be_called_like_attributes(name):
    config = LevelConfig((Limit("a", 1, 2, 3), Limit(name, 4, 5, 6)))
    assert configs.decode(config_writes.encode("ns", ConfigLevel("", "api"), config, "r")) == config


def test_replacing_the_system_s_limits_removes_the_old_ones():
    old = LevelConfig((Limit("a", 1, 2, 3), Limit("b", 1, 2, 3)), OnUnavailable.ALLOW)
    before = {**config_writes.encode("ns", ConfigLevel("", "x"), old, "r1"), "config_version": n(3)}
    update = config_writes.system_update("ns", before, LevelConfig((Limit("b", 4, 5, 6),)), "r2")
    action = body_of(update)
    named = action["ExpressionAttributeNames"]
    change, removed = action["UpdateExpression"].split(" REMOVE ")
    assert {named[each] for each in removed.split(",")} == {
        "l_a_cp",
        "l_a_ra",
        "l_a_rp",
        "on_unavailable",
    }
    assert "ADD" in change
    assert s("r1") in action["ExpressionAttributeValues"].values()


@pytest.mark.parametrize(
    "attributes",
    [
        {"l_rpm_cp": n(5)},
        {"l_rpm_cp": n(0), "l_rpm_ra": n(1), "l_rpm_rp": n(1)},
        {"l_rpm_cp": s("5"), "l_rpm_ra": n(1), "l_rpm_rp": n(1)},
        {"on_unavailable": s("perhaps")},
    ],
)
def test_damaged_limits_are_named(attributes):
    item = {"PK": s("ns/SYSTEM#"), "SK": s("#CONFIG"), **attributes}
    with pytest.raises(RateLimiterUnavailable, match="ns/SYSTEM# #CONFIG"):
        configs.decode(item)
    written = configs.revise(LevelChange(ConfigLevel(), (Limit("rpm", 1, 2, 3),)), item)
    assert written.event is not None
    assert written.event[1]["previous"] == {"damaged": True}
    with pytest.raises(RateLimiterUnavailable, match="ns/SYSTEM# #CONFIG"):
        configs.revise(LevelChange(ConfigLevel(), KEEP), item)


@given(
    st.builds(
        Entity,
        texts,
        st.none() | texts,
        st.none() | texts,
        st.booleans(),
        st.dictionaries(texts, texts, max_size=3),
        texts,
    )
)
def test_entities_read_back(entity):
    item = entities.encode("ns", entity, "r")
    assert is_plain(item)
    assert entities.decode(stranger(item)) == entity
    assert ("GSI1PK" in item) == (entity.parent_id is not None)


def test_an_entity_needs_nothing_but_its_id():
    assert entities.decode({"entity_id": s("user")}) == Entity("user")
    with pytest.raises(RateLimiterUnavailable, match="ns/ENTITY#user"):
        entities.decode({"PK": s("ns/ENTITY#user"), "SK": s("#META")})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@given(st.dictionaries(texts, json_values, max_size=3))
def test_documents_and_details_read_back(document):
    assert decode_document(system.encode_document("ns", "version", document)) == document
    event = AuditEvent("id", "2026-01-01T00:00:00Z", "limits_set", "user", None, "api", document)
    item = audit.encode("ns", event, 90)
    assert is_plain(item)
    assert audit.decode(stranger(item)) == event


@pytest.mark.parametrize("status", ["active", "deleted", "purging"])
def test_both_records_of_a_namespace_read_back(status):
    deleted_at = None if status == "active" else "2026-01-02T00:00:00Z"
    namespace = Namespace("id-1", "red", status, "2026-01-01T00:00:00Z", deleted_at)
    assert system.decode_namespace(stranger(system.encode_by_id(namespace))) == namespace
    if status == "active":
        assert system.decode_namespace(stranger(system.encode_by_name(namespace))) == namespace


@given(
    st.integers(-10_000, 10_000_000),
    st.dictionaries(names, st.tuples(*[st.integers(-(10**15), 10**15)] * 2), max_size=4),
    st.integers(0, 10**9),
    tallies(names, 10**9) | st.just(NO_TALLY),
)
def test_hours_read_back(hour, amounts, admitted, tally):
    used = {name: net for name, (net, _) in amounts.items()}
    through = {name: of_children for name, (_, of_children) in amounts.items() if of_children}
    stored_hour = HourUsage(hour, used, admitted, through, tally)
    shard_id = ShardId("ns", "user/1", "a/b.c", 3)
    for closes in (True, False):
        update = day_row.store(shard_id, "abc", [stored_hour], 5, closes=closes)
        item = updated(update)
        assert is_plain(item)
        assert day_row.decode_row(stranger(item)) == (
            day_row.RowId(day_row.day_of(hour), "user/1", "a/b.c", 3),
            {(hour, "abc"): stored_hour},
            frozenset() if closes else frozenset({"abc"}),
        )
        assert day_row.is_stored(item, "abc", hour)
    assert day_row.resource_of(item) == "a/b.c"
    assert body_of(update).get("ConditionExpression") is None


def test_hours_with_different_limits_read_back_from_one_row():
    """A number means another limit in each of them: the names are found by their digest."""
    hours = [
        HourUsage(30, {"rpm": 1000, "tpm": 2000}, 1),
        HourUsage(31, {"cpm": 3000, "rpm": 4000}, 2, {"cpm": 500}, Tally(1)),
        HourUsage(32),
        HourUsage(33, {"tpm": 5000, "rpm": 0}, 1),
    ]
    shard_id = ShardId("ns", "user", "api", 0)
    together = updated(day_row.store(shard_id, "abc", hours, 5))
    alone = {}
    for each in reversed(hours):
        alone |= updated(day_row.store(shard_id, "abc", [each], 5))
    read = day_row.decode_row(together).hours
    assert read == {(each.hour, "abc"): each for each in hours}
    assert day_row.decode_row(alone).hours == day_row.decode_row(together).hours
    assert sum(name.startswith("n_") for name in together) == 3


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("returns", ["UPDATED_OLD", ""])
def test_the_text_of_a_store_is_that_of_its_update(closes, count, returns):
    shard_id = ShardId("ns", 'a"b\\c ü%s', "api", 3)
    for origin in ("abc", "xyz"):  # the second one fills in the form of the first
        hours = [HourUsage(hour, {"rpm": hour}, 1) for hour in range(count)]
        stored = shard_id, origin, hours, 5
        update = day_row.store(*stored, closes=closes)
        body = json.loads(text_of(update, "t", returns))
        assert (body.pop("TableName"), body.pop("ReturnValues", None)) == (
            "t",
            returns or None,
        )
        assert body == body_of(update)


BY_BUDGET, BY_RPM = LimitedBy("acme", "all", "usd"), LimitedBy("", "", "rpm")
REFUSED = Tally(3, 1, 0, {"rpm": 5}, 0, 1, 4, Refusals(BY_RPM, 1_700_000_000, BY_BUDGET, 2))


def test_what_refused_is_stored_with_its_hour():
    """Names of the bucket itself are left out, and the most frequent one if it is the last."""
    hour = HourUsage(31, {"rpm": 1000}, 6, tally=REFUSED)
    item = updated(day_row.store(ShardId("ns", "user", "api", 0), "abc", [hour], 5))
    _, *counts = json.loads(item["07_abc"]["S"])
    assert counts == [
        *(6, [1000], [], 3, 1, 0, {"rpm": 5}, 0, 1, 4),
        [1_700_000_000, 2, ["rpm"], ["usd", "all", "acme"]],
    ]
    assert day_row.decode_row(item).hours[31, "abc"].tally == REFUSED


def test_what_refused_is_stored_with_the_amounts_of_the_running_hour():
    indexes = {"rpm": 0, "tpm": 1}
    for refusals, spelled in (
        (REFUSED.refusals, '0=5;[1700000000,2,["rpm"],["usd","all","acme"]]'),
        (Refusals(BY_RPM, 7, BY_RPM, 1), '0=5;[7,1,["rpm"]]'),
        (None, "0=5"),
    ):
        details = Tally(asked={"rpm": 5}, refusals=refusals)
        assert item_hours.encode_rejections(details, indexes) == spelled
        assert item_hours.decode_rejections(spelled, indexes) == details
    nothing_asked = Tally(refusals=Refusals(BY_RPM, 7, BY_RPM, 1))
    assert item_hours.decode_rejections(';[7,1,["rpm"]]', indexes) == nothing_asked


def test_an_announced_origin_is_open():
    update = day_row.announce(ShardId("ns", "user", "api", 0), 7, "abc", 5)
    action = body_of(update)
    assert action["UpdateExpression"].count("if_not_exists") == 1
    (name,) = [
        short for short, name in action["ExpressionAttributeNames"].items() if name == "o_abc"
    ]
    assert f"{name}=if_not_exists({name},:" in action["UpdateExpression"]
    assert day_row.decode_row(updated(update)) == (
        day_row.RowId(7, "user", "api", 0),
        {},
        frozenset({"abc"}),
    )


def test_a_late_credit_is_an_origin_of_its_own():
    credit = HourUsage(7, {"rpm": -5000}, through_children={"rpm": -1000})
    update = day_row.late_credit(BucketId("ns", "user", "api"), "65f.1", credit, 5)
    row = day_row.decode_row(updated(update))
    assert row.hours == {(7, "65f.1"): credit}
    assert row.open_origins == frozenset(), "no bucket has it"


def test_origins_add_up_in_whole_tokens():
    hours = [
        HourUsage(7, {"rpm": 1500, "tpm": 1999}, 2, {"rpm": 500}, Tally(1)),
        HourUsage(7, {"rpm": 500}, 1, {"rpm": 500}),
    ]
    total = HourUsage(7, {"rpm": 2000, "tpm": 1000}, 3, {"rpm": 1000}, Tally(1))
    assert total_of(hours).rounded_down() == total


def test_usage_expires_when_its_retention_ends():
    assert day_row.expires_s(0, 90) == 91 * 86400


@given(st.integers(-700_000, 2_900_000), st.integers(-700_000, 2_900_000))
def test_days_sort_by_time(one, other):
    assert (day_row.day_key(one) < day_row.day_key(other)) == (one < other)


def test_the_ends_of_time_have_keys():
    assert day_row.day_key(-(10**12)) < "0003" < "9986" < day_row.day_key(10**12)
