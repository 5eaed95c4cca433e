"""What is written to a table reads back as it was, and strangers' attributes do no harm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import WindowUsage
from zae_limiter.dynamodb.items import (
    audit,
    config_writes,
    configs,
    entities,
    system,
    usage,
    usage_reads,
)
from zae_limiter.dynamodb.items.attributes import decode_document, n, s
from zae_limiter.dynamodb.items.bucket import BucketId
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import ConfigLevel, LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.limit import Limit

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
    assert configs.holds_limits(item)


def test_an_item_with_nothing_but_a_version_holds_no_limits():
    item = {"PK": s("ns/SYSTEM#"), "SK": s("#CONFIG"), "config_version": n(7)}
    assert configs.decode(item) is None
    assert configs.decode_version(item) == 7
    assert not configs.holds_limits(item)
    assert (configs.decode(None), configs.decode_version(None)) == (None, 0)


@pytest.mark.parametrize("name", ["a_cp", "l_", "cp", "a_cp_ra", "rev", "a.b-c"])
def test_limits_may_be_called_like_attributes(name):
    config = LevelConfig((Limit("a", 1, 2, 3), Limit(name, 4, 5, 6)))
    assert configs.decode(config_writes.encode("ns", ConfigLevel("", "api"), config, "r")) == config


def test_replacing_the_system_s_limits_removes_the_old_ones():
    old = LevelConfig((Limit("a", 1, 2, 3), Limit("b", 1, 2, 3)), OnUnavailable.ALLOW)
    before = {**config_writes.encode("ns", ConfigLevel("", "x"), old, "r1"), "config_version": n(3)}
    update = config_writes.system_update("ns", before, LevelConfig((Limit("b", 4, 5, 6),)), "r2")
    action = update.action()
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
    assert configs.described(item) == {"damaged": True}


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
    st.builds(
        Tally,
        *[st.integers(0, 10**9)] * 3,
        asked=st.dictionaries(names, st.integers(1, 10**12), max_size=3),
    ),
)
def test_hours_read_back(hour, used, admitted, tally):
    stored_hour = usage.OriginHour("3.abc", hour, used, admitted, tally)
    update = usage.store(BucketId("ns", "user/1", "a/b.c"), stored_hour, 5)
    item = applied(update)
    assert is_plain(item)
    assert usage_reads.decode_row(stranger(item)) == (
        "user/1",
        "a/b.c",
        hour,
        {"3.abc": stored_hour},
    )
    assert usage_reads.resource_of(item) == "a/b.c"
    assert update.action().get("ConditionExpression") is None


def applied(update):
    """Return the item that an update with plain SETs makes where there is none."""
    action = update.action()
    assert action["UpdateExpression"].startswith("SET ")
    item = dict(action["Key"])
    for clause in action["UpdateExpression"].removeprefix("SET ").split(","):
        name, value = clause.split("=")
        item[action["ExpressionAttributeNames"][name]] = action["ExpressionAttributeValues"][value]
    return item


def test_an_announced_hour_is_open():
    update = usage.announce(BucketId("ns", "user", "api"), 7, "0.abc", 5)
    action = update.action()
    assert action["UpdateExpression"].count("if_not_exists") == 1
    (name,) = [
        short for short, name in action["ExpressionAttributeNames"].items() if name == "o_0.abc"
    ]
    assert f"{name}=if_not_exists({name},:" in action["UpdateExpression"]
    item = {**action["Key"], "entity_id": s("user"), "o_0.abc": s("open")}
    assert usage_reads.decode_row(item).origins == {"0.abc": usage_reads.OPEN}


def test_a_late_credit_is_an_origin_of_its_own():
    used = {"rpm": (-3000, -1000), "rpm~0123": (-2000, 0)}
    update = usage.late_credit(BucketId("ns", "user", "api"), 7, "65f.1", used, 5)
    row = usage_reads.decode_row(applied(update))
    assert row.origins["65f.1"].used_milli == {"rpm": (-5000, -1000)}


def test_origins_add_up_in_whole_tokens():
    hours = [
        usage.OriginHour("0.a", 7, {"rpm": (1500, 500), "tpm": (1000, 0)}, 2, Tally(1)),
        usage.OriginHour("0.b", 7, {"rpm": (500, 500)}, 1),
    ]
    assert usage_reads.window_usage(7, hours) == WindowUsage(
        7, {"rpm": 2, "tpm": 1}, 3, {"rpm": 1}, Tally(1)
    )


def test_usage_expires_when_its_retention_ends():
    assert usage.expires_s(0, 90) == 3600 + 90 * 86400


@given(st.integers(-17_000_000, 70_000_000), st.integers(-17_000_000, 70_000_000))
def test_hours_sort_by_time(one, other):
    assert (usage.window_key(one) < usage.window_key(other)) == (one < other)


def test_the_ends_of_time_have_keys():
    assert usage.window_key(-(10**12)) < "0003" < "9986" < usage.window_key(10**12)
