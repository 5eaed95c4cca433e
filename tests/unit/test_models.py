import dataclasses
import math
import pickle
from decimal import Decimal
from functools import partial

import pytest

from zae_limiter import (
    AuditEvent,
    Availability,
    BackendCapabilities,
    BucketState,
    CacheStats,
    Entity,
    EntityCapacity,
    InvalidNameError,
    Limit,
    LimitName,
    LimitStatus,
    OnUnavailable,
    ResourceCapacity,
    StoreStats,
    UsageSnapshot,
    UsageSummary,
    ValidationError,
)
from zae_limiter.models.limit import (
    MAX_LIMITS,
    MAX_PERIOD_SECONDS,
    MAX_TOKENS,
    check_amounts,
    check_limits,
)

FIELDS = ("capacity", "refill_amount", "refill_period_seconds")
NOT_WHOLE = [1.0, 0.5, math.nan, math.inf, True, False, "5", None, [5], 5j]
RPM = Limit("rpm", 10, 5, 60)


# --- limits

NOT_MONEY = [0.1, 5.0, math.nan, True, None, "one", "NaN", Decimal("Infinity"), "0.1234567891"]


@pytest.mark.parametrize("amount", [*NOT_MONEY, 0, -1, "-0.5"], ids=repr)
def test_a_budget_is_exact_money_above_zero(amount):
    with pytest.raises(ValidationError) as caught:
        Limit.budget("usd", amount, per="day")
    assert caught.value.field == "limit.amount"
    assert str(amount) in str(caught.value)


@pytest.mark.parametrize("amount", [Decimal(5), "5", 5.0], ids=repr)
def test_only_a_budget_takes_decimals(amount):
    for make in (Limit.per_minute, partial(Limit.quota, per="day")):
        with pytest.raises(ValidationError, match="must be a whole number"):
            make("tokens", amount)


def test_a_hold_lives_two_seconds_or_more():
    assert Limit.quota("tokens", 5, per="day", hold_ttl=2).hold_ttl == 2
    for wrong in (1, 0, -1, 2.5, True, "10"):
        with pytest.raises(ValidationError, match="whole seconds from 2"):
            Limit.quota("tokens", 5, per="day", hold_ttl=wrong)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_a_limit_holds_whole_numbers_only(field, value):
    fields = {"name": "rpm", "capacity": 1, "refill_amount": 1, "refill_period_seconds": 1}
    with pytest.raises(ValidationError, match="must be a whole number") as caught:
        Limit(**{**fields, field: value})
    assert caught.value.field == f"limit.{field}"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [0, -1, -(10**30)])
def test_a_limit_is_greater_than_zero(field, value):
    fields = {"name": "rpm", "capacity": 1, "refill_amount": 1, "refill_period_seconds": 1}
    with pytest.raises(ValidationError, match="greater than zero"):
        Limit(**{**fields, field: value})


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("capacity", MAX_TOKENS),
        ("refill_amount", MAX_TOKENS),
        ("refill_period_seconds", MAX_PERIOD_SECONDS),
    ],
)
def test_a_limit_has_a_greatest_size(field, most):
    fields = {"name": "rpm", "capacity": 1, "refill_amount": 1, "refill_period_seconds": 1}
    assert getattr(Limit(**{**fields, field: most}), field) == most
    with pytest.raises(ValidationError, match=f"at most {most}"):
        Limit(**{**fields, field: most + 1})


@pytest.mark.parametrize("name", ["", "1rpm", "r p m", "rpm~1", "wcu", None, 5, b"rpm"])
def test_a_limit_has_a_valid_name(name):
    with pytest.raises(InvalidNameError) as caught:
        Limit(name, 1, 1, 1)
    assert caught.value.field == "limit.name"


@pytest.mark.parametrize(
    ("make", "period"),
    [
        (Limit.per_second, 1),
        (Limit.per_minute, 60),
        (Limit.per_hour, 3600),
        (Limit.per_day, 86_400),
        (Limit.per_week, 604_800),
    ],
)
def test_capacity_is_the_rate_or_the_burst(make, period):
    assert make("rpm", 100) == Limit("rpm", 100, 100, period)
    assert make("rpm", 100, burst=150) == Limit("rpm", 150, 100, period)
    assert make("rpm", 100, 20) == Limit("rpm", 20, 100, period)
    with pytest.raises(ValidationError):
        make("rpm", 100, burst=0)
    with pytest.raises(ValidationError):
        make("rpm", 0)


def test_custom_limits_and_their_rate():
    limit = Limit.custom("rpm", 10, 5, 60)
    assert limit == RPM
    assert limit.refill_rate == 5 / 60
    assert (limit.capacity_milli, limit.refill_amount_milli) == (10_000, 5000)
    assert limit.refill_period_ms == 60_000


def test_the_time_to_fill_is_rounded_up():
    assert Limit("rpm", 10, 5, 60).time_to_fill_ms == 120_000
    assert Limit("rpm", 1, 3, 1).time_to_fill_ms == 334


@pytest.mark.parametrize("name", list(LimitName))
def test_the_common_names_are_plain_text(name):
    limit = Limit.per_minute(name, 5)
    assert type(limit.name) is str
    assert limit == Limit.per_minute(name.value, 5)
    assert name == name.value == name.name.lower()


def test_a_limit_goes_through_a_dict_and_back():
    data = RPM.to_dict()
    assert data == {
        "name": "rpm",
        "capacity": 10,
        "refill_amount": 5,
        "refill_period_seconds": 60,
    }
    assert Limit.from_dict(data) == RPM
    assert Limit.from_dict({**data, "comment": "more than needed"}) == RPM


@pytest.mark.parametrize("field", ["name", *FIELDS])
def test_a_dict_that_lacks_something_says_what(field):
    data = RPM.to_dict()
    del data[field]
    with pytest.raises(ValidationError, match=f"lacks {field}"):
        Limit.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "rpm", 5, RPM])
def test_a_limit_is_read_from_a_mapping_only(data):
    with pytest.raises(ValidationError, match="mapping"):
        Limit.from_dict(data)


def test_a_dict_with_numbers_as_text_is_not_guessed_at():
    with pytest.raises(ValidationError):
        Limit.from_dict({**RPM.to_dict(), "capacity": "10"})


@pytest.mark.parametrize("limits", [None, 5, "rpm", RPM, {"rpm": RPM}, [RPM, "tpm"], [None]])
def test_limits_are_a_list_of_limits(limits):
    with pytest.raises(ValidationError, match="list of Limit"):
        check_limits(limits)


def test_limits_are_some_and_each_but_once():
    assert check_limits(iter([RPM])) == (RPM,)
    with pytest.raises(ValidationError, match="empty"):
        check_limits([])
    with pytest.raises(ValidationError, match="twice"):
        check_limits([RPM, Limit("rpm", 1, 1, 1)])
    many = [Limit(f"n{place}", 1, 1, 1) for place in range(MAX_LIMITS + 1)]
    assert len(check_limits(many[1:])) == MAX_LIMITS
    with pytest.raises(ValidationError, match=str(MAX_LIMITS)):
        check_limits(many)


@pytest.mark.parametrize(("slots", "rates", "fit"), [(8, 0, True), (9, 0, False), (4, 17, False)])
def test_a_limit_on_calls_in_flight_counts_as_four(slots, rates, fit):
    limits = [Limit.concurrent(f"s{place}", 5) for place in range(slots)]
    limits += [Limit(f"n{place}", 1, 1, 1) for place in range(rates)]
    if fit:
        assert len(check_limits(limits)) == slots + rates
        return
    with pytest.raises(ValidationError, match="counts as 4"):
        check_limits(limits)


# --- amounts


@pytest.mark.parametrize("amount", [each for each in NOT_WHOLE if each != "5"], ids=repr)
def test_amounts_are_whole_tokens(amount):
    with pytest.raises(ValidationError, match="whole number") as caught:
        check_amounts({"rpm": amount})
    assert caught.value.field == "consume.rpm"


def test_amounts_may_be_zero_and_negative_only_where_signed():
    assert check_amounts({"rpm": 0, "tpm": 5}) == {"rpm": 0, "tpm": 5}
    assert check_amounts({"rpm": -5}, signed=True) == {"rpm": -5}
    with pytest.raises(ValidationError, match="negative"):
        check_amounts({"rpm": -5})


@pytest.mark.parametrize("amount", [MAX_TOKENS + 1, -MAX_TOKENS - 1])
def test_amounts_have_a_greatest_size(amount):
    check_amounts({"rpm": amount - (1 if amount > 0 else -1)}, signed=True)
    with pytest.raises(ValidationError, match=str(MAX_TOKENS)):
        check_amounts({"rpm": amount}, signed=True)


@pytest.mark.parametrize("amounts", [None, 5, "rpm", ["rpm"], [("rpm", 1)]])
def test_amounts_are_a_mapping(amounts):
    with pytest.raises(ValidationError, match="mapping"):
        check_amounts(amounts)


def test_amounts_are_by_name_and_take_the_common_names():
    with pytest.raises(ValidationError, match="strings"):
        check_amounts({5: 1})
    (name,) = check_amounts({LimitName.RPM: 1})
    assert type(name) is str


# --- the others


def status(**changes):
    fields = {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "rpm",
        "limit": RPM,
        "available": 3,
        "requested": 5,
        "exceeded": True,
        "retry_after_seconds": 24.0,
    }
    return LimitStatus(**{**fields, **changes})


def test_the_deficit_is_what_is_missing():
    assert status().deficit == 2
    assert status(available=-4).deficit == 9
    assert status(available=7).deficit == 0


def test_an_availability_is_true_or_false():
    assert Availability(True, (), 0.0)
    assert not Availability(False, (status(),), 24.0)


def test_a_child_has_a_parent_and_a_parent_has_none():
    child, parent = Entity("a", parent_id="b"), Entity("b")
    assert (child.is_child, child.is_parent) == (True, False)
    assert (parent.is_child, parent.is_parent) == (False, True)
    assert parent.metadata == {}
    assert parent.cascade is False


def test_a_bucket_from_a_limit_is_full():
    state = BucketState.from_limit("user-1", "gpt-4", RPM, 1234)
    assert state == BucketState("user-1", "gpt-4", "rpm", 10_000, 1234, 10_000, 5000, 60_000, 0)
    assert (state.tokens, state.capacity, state.limit) == (10, 10, RPM)


@pytest.mark.parametrize(
    ("milli", "tokens"), [(999, 0), (1000, 1), (-1, -1), (-1000, -1), (-1001, -2)]
)
def test_tokens_are_rounded_down_also_in_debt(milli, tokens):
    state = BucketState.from_limit("user-1", "gpt-4", RPM, 0)
    assert dataclasses.replace(state, tokens_milli=milli).tokens == tokens


@pytest.mark.parametrize("value", ["allow", "block", OnUnavailable.ALLOW])
def test_an_outage_policy_is_also_plain_text(value):
    assert OnUnavailable.parse(value) == value
    assert isinstance(OnUnavailable.parse(value), OnUnavailable)


@pytest.mark.parametrize("value", ["", "ALLOW", "deny", None, True, 5, []])
def test_other_outage_policies_are_refused(value):
    with pytest.raises(ValidationError, match="'allow' or 'block'"):
        OnUnavailable.parse(value)


def test_figures_of_a_client_that_has_done_nothing():
    assert (StoreStats().writes_per_charge, StoreStats().round_trips_per_granted) == (0, 0)


def test_figures_per_charge_and_per_thing_done():
    stats = StoreStats(charges=12, granted=8, rejected=4, settlements=2, writes=6)
    assert (stats.writes_per_charge, stats.round_trips_per_granted) == (0.5, 0.6)
    assert StoreStats(charges=3, rejected=3, writes=3).round_trips_per_granted == 0


VALUES = [
    RPM,
    status(),
    Availability(False, (status(),), 24.0),
    BucketState.from_limit("user-1", "gpt-4", RPM, 0),
    Entity("a", metadata={"plan": "free"}),
    EntityCapacity("a", 10, 5, 50.0),
    ResourceCapacity("gpt-4", "rpm", 10, 5, 50.0, []),
    UsageSnapshot("a", "gpt-4", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "hourly", {}, 0),
    UsageSummary(0, {}, {}, None, None),
    AuditEvent("1", "2026-01-01T00:00:00Z", "limits_set", "a"),
    BackendCapabilities("memory", False, False, True, True),
    CacheStats(1, 2, 3, 60),
    StoreStats(calls=3),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen_and_pickle(value):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)
    assert pickle.loads(pickle.dumps(value)) == value
