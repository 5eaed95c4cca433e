"""Each clause and condition by which a write counts for an hour, or turns it."""

import re
from dataclasses import replace

import pytest

from tests.support.changes import charge_of, settlement_of
from tests.support.dynamodb.model.expressions import with_blanks
from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, LIMIT, NOW_MS, item_of
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import HOUR_MS, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import rebase
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.buckets import writes
from zae_limiter.items.buckets.cache import CachedBucket, FreshBucket
from zae_limiter.items.buckets.planning import plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import removal
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.bucket import EntityLink

HOUR = NOW_MS // HOUR_MS
SHARD_ID = BUCKET_ID.shard(0)
LATER = NOW_MS + HOUR_MS
CHARGE = charge_of(IN_FORCE, {"rpm": 1000})


def spelled(update):
    """The request with its placeholders replaced: parts of the update, and conditions."""
    body = body_of(update)
    names = body["ExpressionAttributeNames"]
    values = {k: str(next(iter(v.values()))) for k, v in body["ExpressionAttributeValues"].items()}

    def spell(text):
        written = {**names, **values}
        return re.sub(r"[#:]\w+", lambda found: written[found.group()], with_blanks(text))

    return spell(body["UpdateExpression"]), spell(body["ConditionExpression"])


def attempt_at(now_ms, change=CHARGE, *, known=None, item=None, **context):
    known = known or FreshBucket(bucket_item.decode(item or item_of()))
    return plan(known, [change], WriteContext(SHARD_ID, now_ms, "id", **context), EntityLink())


def test_in_the_same_hour_a_charge_says_nothing_of_it():
    attempt = attempt_at(NOW_MS)
    update, condition = spelled(attempt.request)
    assert "ac 1" in update
    assert not {"h", "o", "ph", "b0", "u0", "k0"} & set(update.replace(",", " ").split())
    assert "h >" not in condition
    assert (attempt.write_id, attempt.begins_hour, attempt.store_first) == ("id", None, None)


def test_an_earlier_stamp_counts_for_the_hour_that_runs():
    assert attempt_at(NOW_MS - HOUR_MS).begins_hour is None


def test_without_retention_no_hour_is_turned():
    assert attempt_at(LATER, usage_ms=0).begins_hour is None


def test_the_first_write_of_an_hour_turns_it():
    attempt = attempt_at(LATER, tally=Tally(3, 2, 0, {"rpm": 30}, 4))
    update, condition = spelled(attempt.request)
    for part in (
        "u0 = c_rpm - if_not_exists(b0, 0)",
        "b0 = c_rpm",
        "ua = if_not_exists(ac, 0)",
        "ac = 1",
        "ur = if_not_exists(rj, 0)",
        "rj = 3",
        "ux = if_not_exists(rx, 0)",
        "rx = 2",
        "uw = if_not_exists(wt, 0)",
        "us = if_not_exists(sh, 0)",
        "sh = 4",
        "uq = if_not_exists(rq, )",
        "rq = 0=30",
        "ph = h",
        f"h = {HOUR + 1}",
        "op = ~id",
        "c_rpm 1000",
    ):
        assert part in update
    for part in (
        "n = 1",
        "lh = ",
        "o = 0.origin",
        f"h < {HOUR + 1}",
        "attribute_not_exists(ph)",
        "attribute_not_exists(k0)",
    ):
        assert part in condition
    assert "v0" not in update
    assert attempt.write_id == "~id"
    is_first = (HOUR + 1) // 24 != HOUR // 24
    assert attempt.begins_hour == ("0.origin", HOUR + 1, is_first)
    assert attempt.store_first is None


def test_what_came_through_children_is_turned_with_it():
    change = replace(CHARGE, through_child=frozenset({"rpm"}))
    update, condition = spelled(attempt_at(LATER, change).request)
    assert "k0 = 1000" in update
    assert "attribute_not_exists(k0)" in condition
    update, condition = spelled(attempt_at(LATER, change, item={**item_of(), "k0": n(7)}).request)
    assert "v0 = if_not_exists(k0, 0)" in update
    assert "k0 = 1000" in update
    assert "k0" not in condition
    update, _ = spelled(attempt_at(LATER, item={**item_of(), "k0": n(7)}).request)
    assert "k0 = 0" in update


def test_a_finished_hour_is_stored_before_it_is_turned_over():
    item = {**item_of(), "ph": n(HOUR - 1), "u0": n(5000), "ua": n(2), "ur": n(1)}
    attempt = attempt_at(LATER, item=item)
    _, condition = spelled(attempt.request)
    assert f"(attribute_not_exists(ph) OR ph = {HOUR - 1})" in condition
    assert attempt.store_first.origin == "0.origin"
    assert attempt.store_first.finished == HourUsage(HOUR - 1, {"rpm": 5000}, 2, tally=Tally(1))
    assert attempt.store_first.closes_day == ((HOUR - 1) // 24 != HOUR // 24)


def test_a_credit_to_a_bucket_that_was_seen_turns_its_hour():
    credit = settlement_of(IN_FORCE, {"rpm": -1000})
    update, condition = spelled(attempt_at(LATER, credit).request)
    assert "u0 = c_rpm - if_not_exists(b0, 0)" in update
    assert "o = 0.origin" in condition
    assert attempt_at(LATER, credit).gives


def test_a_credit_through_a_child_requires_the_slots_that_it_uses():
    change = settlement_of(IN_FORCE, {"rpm": -1000}, through_child=frozenset({"rpm"}))
    update, condition = spelled(attempt_at(NOW_MS, change).request)
    assert "k0 -1000" in update
    assert "lh = " in condition


def cached(others_per_s, at_ms=NOW_MS):
    bucket = bucket_item.decode(item_of())
    return CachedBucket(bucket, at_ms, {}, None, others_per_s)


@pytest.mark.parametrize(
    ("others_per_s", "seconds", "late"),
    [(0.0, 3000, False), (1.0, 0.6, False), (1.0, 0.8, True), (0.001, 600, False), (10, 0.1, True)],
)
def test_late_if_others_have_probably_turned_the_hour(others_per_s, seconds, late):
    border = (HOUR + 1) * HOUR_MS
    attempt = attempt_at(border + int(seconds * 1000), known=cached(others_per_s))
    update, condition = spelled(attempt.request)
    assert (f"h >= {HOUR + 1}" in condition) is late
    assert (f"h < {HOUR + 1}" in condition) is not late
    assert ("ph = h" in update) is not late


def test_the_time_since_the_item_was_seen_counts_not_that_since_the_border():
    border = (HOUR + 1) * HOUR_MS
    seen_late = cached(1.0, border + 10_000)
    assert attempt_at(border + 10_100, known=seen_late).begins_hour is not None


def test_late_while_another_write_of_this_client_turns_the_hour():
    attempt = attempt_at(LATER, known=cached(0.0), is_turning=True)
    assert f"h >= {HOUR + 1}" in spelled(attempt.request)[1]


def test_the_first_write_takes_only_from_an_hour_that_is_not_over():
    attempt = attempt_at(NOW_MS, known=FreshBucket(None))
    update, condition = spelled(attempt.request)
    assert f"h >= {HOUR}" in condition
    assert f"h = if_not_exists(h, {HOUR})" in update
    assert "o = if_not_exists(o, " in update
    assert "p_rpm = if_not_exists(p_rpm, 100::60:0)" in update
    assert attempt.write_id == "~id"


def test_a_dropped_limit_leaves_its_hour_to_its_namesake():
    other = Rate(7000, 7000, 60_000)
    rates, slots = {"rpm": Rate.of(LIMIT), "rpm~aa": other}, {"rpm": 0, "rpm~aa": 1}
    item = {
        **item_of(),
        "t_rpm~aa": n(0),
        "c_rpm~aa": n(9000),
        "p_rpm~aa": s("7:7:60:1"),
        "b1": n(4000),
        "lh": s(bucket_item.digest_of(rates, slots)),
    }
    in_force = InForce((Limit.per_minute("rpm", 200),), ConfigSource.SYSTEM, 2)

    def attempt(stored, now_ms):
        bucket = bucket_item.decode(stored)
        target = rebase(bucket.image, in_force, now_ms)
        return writes.rebase(bucket, target, in_force, WriteContext(SHARD_ID, now_ms, "id"))

    write = attempt(item, NOW_MS)
    update, condition = spelled(write.request)
    assert "c_rpm 5000" in update  # of this hour
    for name in ("t_rpm~aa", "c_rpm~aa", "p_rpm~aa", "b1", "k1"):
        assert name in update.partition("REMOVE")[2]
    for part in (
        "attribute_not_exists(ph)",
        "attribute_not_exists(k1)",
        "c_rpm~aa = 9000",
        f"h = {HOUR}",
        "o = 0.origin",
    ):
        assert part in condition
    assert write.store_first is None
    # with a finished hour, which is stored first and then goes
    write = attempt({**item, "ph": n(HOUR - 1), "u0": n(1), "u1": n(2)}, NOW_MS)
    update, condition = spelled(write.request)
    assert write.store_first is not None
    assert {"ph", "u0", "u1", "ua", "ur"} <= set(
        update.partition("REMOVE")[2].replace(",", " ").split()
    )
    assert f"(attribute_not_exists(ph) OR ph = {HOUR - 1})" in condition
    # through children: added up by the store
    update, _ = spelled(attempt({**item, "k1": n(5)}, NOW_MS).request)
    assert "k0 = if_not_exists(k0, 0) + if_not_exists(k1, 0)" in update
    # a write that turns the hour drops nothing
    update, _ = spelled(attempt(item, LATER).request)
    assert "u1 = c_rpm~aa - if_not_exists(b1, 0)" in update
    assert update.endswith("REMOVE rx, wt, sh, rf, ax, rq")


def test_a_credit_to_a_bucket_that_is_gone_is_counted_late():
    credit = settlement_of(IN_FORCE, {"rpm": -1000})
    assert attempt_at(NOW_MS, credit, known=FreshBucket(None)).late_credits == {"rpm": (-1000, 0)}


def test_slots_are_the_lowest_that_are_free():
    assert bucket_item.limit_indexes(["a", "b"]) == {"a": 0, "b": 1}
    assert bucket_item.limit_indexes(["b", "c", "d"], {"a": 0, "b": 1}) == {"b": 1, "c": 0, "d": 2}


def test_other_slots_are_other_limits():
    rates = {"a": Rate.of(LIMIT), "b": Rate.of(LIMIT)}
    assert bucket_item.digest_of(rates, {"a": 0, "b": 1}) != bucket_item.digest_of(
        rates, {"a": 1, "b": 0}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"h": n(HOUR + 1)},
        {"o": s("0.another")},
        {"ph": n(HOUR - 1), "u0": n(1)},
        {"k0": n(1)},
    ],
)
def test_a_changed_hour_is_decoded_again(change):
    known = bucket_item.decode(item_of())
    item = {**item_of(writes=2), **change}
    assert bucket_item.decode(item, known) == bucket_item.decode(item)
    assert bucket_item.decode(item, known).hours != known.hours


def test_a_cleared_hour_is_noticed():
    known = bucket_item.decode({**item_of(), "ph": n(HOUR - 1), "u0": n(1)})
    assert bucket_item.decode(item_of(writes=2), known).hours.finished is None


def test_write_ids_of_turns_have_a_time_and_are_renewed_without_the_mark():
    write_id = "~" + bucket_item.new_write_id(NOW_MS)
    assert bucket_item.hour_of_write(write_id) == HOUR
    assert not bucket_item.renewed_write_id(write_id).startswith("~")
    assert bucket_item.hour_of_write(bucket_item.renewed_write_id(write_id)) == HOUR


def test_an_item_goes_only_as_it_was_read():
    assert removal.guards(item_of()) == ("n", "g", "wc", "o")


@pytest.mark.parametrize(("finished_hour", "rows"), [(HOUR // 24 * 24, 1), (HOUR - 24, 2)])
def test_what_goes_is_stored_in_one_write_for_each_usage_row(finished_hour, rows):
    finished = {"ph": n(finished_hour), "h": n(HOUR // 24 * 24 + 1), "u0": n(5000), "ua": n(1)}
    halves = [{**item_of(shard, consumed=7000), **finished} for shard in (Shard(0, 2), Shard(1, 2))]
    stored = removal.stored_hours(halves, 90)
    assert len(stored) == 2 * rows
    for write in stored:
        update = body_of(write)
        number = update["Key"]["SK"]["S"].rpartition("#")[2]
        names = set(update["ExpressionAttributeNames"].values())
        assert f"o_{number}.origin" in names
        assert {"S": "closed"} in update["ExpressionAttributeValues"].values()
        assert sum(name[:2].isdigit() for name in names) == 2 // rows
    assert removal.stored_hours(halves, 0) == []
    assert removal.stored_hours([item_of()], 90) == []  # nothing was used
