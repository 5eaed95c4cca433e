"""An hour of usage: opened from a bucket, closed by a later write, and added up."""

import pytest

from zae_limiter import Limit
from zae_limiter.admission.image import HOUR_MS, BucketImage, LimitState, Rate
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.admission.usage import HourUsage, open_hour, roll, total_of, without_holds
from zae_limiter.admission.windows import HoldName, QuotaState

HOUR = 490_896
NOW_MS = HOUR * HOUR_MS + 60_000
RPM, BATCH = Rate.of(Limit.per_minute("rpm", 10)), Rate.of(Limit.per_minute("rpm", 20))
USD = Rate.of(Limit.budget("usd", "5.00", per="month", currency="USD"))
SLOTS = Rate.of(Limit.concurrent("calls", 3))


def limit(rate, consumed, counted=0, holds=None):
    quota = None if holds is None else QuotaState(holds)
    return LimitState(0, rate, consumed, counted, quota)


def bucket(through_children=None, admitted=0, tally=NO_TALLY, **limits):
    return BucketImage(
        limits, 1, None, HOUR, admitted, 0, through_children=through_children, tally=tally
    )


@pytest.mark.parametrize(
    ("image", "usage"),
    [
        (bucket(rpm=limit(RPM, 7000, 4000)), HourUsage(HOUR, {"rpm": 3000})),
        (bucket(rpm=limit(RPM, 4000, 7000)), HourUsage(HOUR, {"rpm": -3000})),  # a refund
        (
            bucket(**{"rpm": limit(RPM, 7000), "rpm~0123": limit(BATCH, 500)}),
            HourUsage(HOUR, {"rpm": 7500}),  # a limit of calls counts under its plain name
        ),
        (
            bucket(usd=limit(USD, 25, holds={}), through_children={"usd": 5}),
            HourUsage(HOUR, {"usd@USD": 25}, through_children={"usd@USD": 5}),
        ),
        (bucket(calls=limit(SLOTS, 2000), admitted=2), HourUsage(HOUR, {}, 2)),  # no usage
        (bucket(tally=Tally(rejected=3)), HourUsage(HOUR, tally=Tally(rejected=3))),
    ],
)
def test_the_open_hour_is_what_was_counted_since_it_began(image, usage):
    assert open_hour(image) == usage


@pytest.mark.parametrize("moment_ms", [NOW_MS, NOW_MS - HOUR_MS])
def test_an_hour_stays_open_until_a_later_one_begins(moment_ms):
    image = bucket(rpm=limit(RPM, 7000), admitted=1)
    assert roll(image, moment_ms) == (image, None)


def test_a_later_hour_closes_the_open_one_and_begins_at_nothing():
    image = bucket({"rpm": 2000}, 4, Tally(1), rpm=limit(RPM, 7000, 4000))
    rolled, closed = roll(image, NOW_MS + 2 * HOUR_MS)
    assert closed == HourUsage(HOUR, {"rpm": 3000}, 4, {"rpm": 2000}, Tally(1))
    assert open_hour(rolled) == HourUsage(HOUR + 2, {"rpm": 0})
    assert rolled.limits["rpm"].consumed_milli == 7000


def test_an_hour_without_usage_is_closed_without_a_record():
    rolled, closed = roll(bucket(rpm=limit(RPM, 7000, 7000)), NOW_MS + HOUR_MS)
    assert (rolled.hour, closed) == (HOUR + 1, None)


EXPIRED_S, ALIVE_S = NOW_MS // 1000 - 1, NOW_MS // 1000 + 60
HOLDS = {
    HoldName(1, EXPIRED_S, False): 1,
    HoldName(1, EXPIRED_S, True): 2,
    HoldName(1, ALIVE_S, True): 4,
}


@pytest.mark.parametrize(
    ("now_ms", "used", "of_children"),
    [(None, 13, 4), (NOW_MS, 17, 8), (NOW_MS - 60_000, 20, 10)],
    ids=["all", "of dead calls", "before they died"],
)
def test_what_calls_hold_is_left_out(now_ms, used, of_children):
    image = bucket(usd=limit(USD, 20, holds=HOLDS), through_children={"usd": 10})
    left = open_hour(without_holds(image, now_ms))
    assert (left.used, left.through_children) == ({"usd@USD": used}, {"usd@USD": of_children})


def test_hours_add_up_and_keep_the_first_hour():
    one = HourUsage(7, {"rpm": 1500, "usd@USD": 5}, 2, {"rpm": 500}, Tally(1))
    other = HourUsage(8, {"rpm": 700, "tpm": 1}, 1, {"rpm": 400}, Tally(2))
    total = HourUsage(7, {"rpm": 2200, "usd@USD": 5, "tpm": 1}, 3, {"rpm": 900}, Tally(3))
    assert total_of([one, other]) == total
    whole = HourUsage(7, {"rpm": 2000, "usd@USD": 5, "tpm": 0}, 3, {"rpm": 0}, Tally(3))
    assert total.rounded_down() == whole


@pytest.mark.parametrize(
    ("usage", "is_empty"),
    [
        (HourUsage(7), True),
        (HourUsage(7, {"rpm": 0}, 0, {"rpm": 0}), True),
        (HourUsage(7, {"rpm": -1}), False),
        (HourUsage(7, {}, 1), False),
        (HourUsage(7, {}, 0, {"rpm": 1}), False),
        (HourUsage(7, tally=Tally(waited=1)), False),
    ],
)
def test_an_hour_is_empty_if_nothing_was_counted(usage, is_empty):
    assert usage.is_empty == is_empty
