"""Limits as text: what ``-l`` takes, ``Limit.parse`` reads and ``str`` writes."""

import pytest

from zae_limiter import Limit, ValidationError

MINUTE, HOUR, DAY, WEEK = 60, 3600, 86_400, 604_800


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("rpm:60", Limit.per_minute("rpm", 60)),
        ("rpm:60:90", Limit.per_minute("rpm", 60, burst=90)),
        ("rpm:1000/min:1500", Limit.per_minute("rpm", 1000, burst=1500)),
        ("tpd:1_000_000/day", Limit.per_day("tpd", 1_000_000)),
        ("batch:1/90s:5", Limit.custom("batch", 5, 1, 90)),
        ("batch:10/2h", Limit.custom("batch", 10, 10, 2 * HOUR)),
        (" rpm:60/min ", Limit.per_minute("rpm", 60)),
        ("parallel:20/concurrent, soft", Limit.concurrent("parallel", 20, soft=True)),
        ("parallel:20/concurrent", Limit.concurrent("parallel", 20)),
        ("parallel:20/concurrent:90s", Limit.concurrent("parallel", 20, lease_ttl=90)),
        ("parallel:1_000/concurrent:2min", Limit.concurrent("parallel", 1000, lease_ttl=120)),
    ],
)
def test_a_limit_is_read(text, limit):
    assert Limit.parse(text) == limit


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        *dict.fromkeys(("s", "sec", "second", "1s", "1second"), 1).items(),
        *dict.fromkeys(("m", "min", "minute", "1m", "60s", "60seconds"), MINUTE).items(),
        *dict.fromkeys(("h", "hour", "1h", "60m", "60min", "60minutes"), HOUR).items(),
        *dict.fromkeys(("d", "day", "1d", "24h", "24hours"), DAY).items(),
        *dict.fromkeys(("w", "week", "1w", "7d", "7days"), WEEK).items(),
        ("90s", 90),
        ("2h", 2 * HOUR),
        ("2weeks", 2 * WEEK),
    ],
)
def test_periods(period, seconds):
    assert Limit.parse(f"rpm:5/{period}") == Limit.custom("rpm", 5, 5, seconds)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit.per_second("rps", 5), "rps:5/sec"),
        (Limit.per_minute("rpm", 1000, burst=1500), "rpm:1000/min:1500"),
        (Limit.per_hour("rph", 5), "rph:5/hour"),
        (Limit.concurrent("parallel", 20), "parallel:20/concurrent:60s"),
        (Limit.concurrent("parallel", 1, lease_ttl=3600), "parallel:1/concurrent:3600s"),
        (Limit.concurrent("parallel", 20, soft=True), "parallel:20/concurrent:60s,soft"),
        (Limit.per_day("rpd", 5), "rpd:5/day"),
        (Limit.custom("rpw", 5, 5, WEEK), "rpw:5/week"),
        (Limit.custom("batch", 5, 1, 90), "batch:1/90s:5"),
        (Limit.custom("batch", 5, 5, 2 * HOUR), "batch:5/2h"),
        (Limit.custom("batch", 5, 5, 10 * MINUTE), "batch:5/10m"),
        (Limit.custom("batch", 5, 5, 3 * DAY), "batch:5/3d"),
        (Limit.custom("batch", 5, 5, 2 * WEEK), "batch:5/2w"),
    ],
)
def test_a_limit_is_written_in_its_largest_whole_unit(limit, text):
    assert str(limit) == f"{limit}" == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "rpm", "rpm:", ":5", "rpm:x", "rpm:-1", "rpm:1.5", "rpm:5/", "rpm:5/min:"),
        *("rpm:5:6:7", "rpm:1__0", "rpm:_1", "rpm:1_", "rpm:９", "rpm:5/min/min"),
        *(f"rpm:{'9' * 5000}", None, 5, b"rpm:5"),
    ],
)
def test_other_text_is_refused_with_the_form(text):
    with pytest.raises(ValidationError, match=r"name:rate\[/period\]\[:burst\]") as caught:
        Limit.parse(text)
    assert caught.value.field == "limit"


@pytest.mark.parametrize("period", ["fortnight", "MIN", "90", "s90", "1.5h"])
def test_an_unknown_period_is_refused_with_the_known_ones(period):
    with pytest.raises(ValidationError, match="sec, min, hour, day or week, or a number"):
        Limit.parse(f"rpm:5/{period}")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("wcu:5", "limit.name"),
        ("9rpm:5", "limit.name"),
        ("rpm:0", "limit.capacity"),
        ("rpm:5/min:0", "limit.capacity"),
        ("rpm:0/min:5", "limit.refill_amount"),
        ("rpm:5/0s", "limit.refill_period_seconds"),
        ("rpm:5/6000w", "limit.refill_period_seconds"),
        (f"rpm:{10**16}", "limit.capacity"),
    ],
)
def test_what_no_limit_may_be_is_refused_by_field(text, field):
    with pytest.raises(ValidationError) as caught:
        Limit.parse(text)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("usd:5/month@UTC", "usd:5USD/month@UTC"),
        ("EUR:5k/day@UTC,soft", "EUR:5kEUR/day@UTC,soft"),
        ("jpy:500/5h@first-use", "jpy:500JPY/5h@first-use"),
        ("eur:5USD/month@UTC", "eur:5EUR/month@UTC"),
    ],
)
def test_a_limit_named_after_a_currency_counts_this_currency(text, right):
    with pytest.raises(ValidationError) as caught:
        Limit.parse(text)
    assert (caught.value.field, caught.value.value) == ("limit.name", text.partition(":")[0])
    assert f" write {right}," in caught.value.reason
    assert Limit.parse(right).currency == right[:3].upper()


def test_a_budget_named_after_another_currency_is_refused():
    with pytest.raises(ValidationError, match=r'this budget is in USD.* currency="EUR"'):
        Limit.budget("eur", "5.00", per="month")
    with pytest.raises(ValidationError, match=r'this budget is in EUR.* currency="USD"'):
        Limit.budget("usd", "5.00", currency="EUR", per="month")
    with pytest.raises(ValidationError, match="counts tokens"):
        Limit.from_dict({"name": "gbp", "quota": 5, "per": "month"})
    assert Limit.budget("team", "5.00", per="month").currency == "USD"
    assert Limit.quota("all", 5, per="month").name == "all"  # a word, and the lek of Albania
    assert Limit.per_minute("usd", 5).currency is None  # its notation cannot be taken for money


@pytest.mark.parametrize(
    "make",
    [
        lambda cron: Limit.quota("tokens", 5, cron=cron),
        lambda cron: Limit.budget("usd", 5, per="month", cron=cron),
        lambda cron: Limit.from_dict({"name": "tokens", "quota": 5, "cron": cron}),
    ],
)
def test_a_cron_expression_is_answered_with_the_form_of_windows(make):
    with pytest.raises(ValidationError) as caught:
        make("0 6 1 * *")
    assert caught.value.field == "limit.cron"
    assert 'per="month", on=1, at="06:00", zone="Europe/Berlin"' in caught.value.reason


@pytest.mark.parametrize("unit", ["month", "year"])
def test_a_rate_per_month_names_the_quota_that_is_meant(unit):
    with pytest.raises(ValidationError) as caught:
        getattr(Limit, f"per_{unit}")("tokens", 1_000_000)
    advice = f"Limit.quota('tokens', 1000000, per=\"{unit}\")"
    assert advice in str(caught.value)
    assert eval(advice, {"Limit": Limit}).window is not None


QUOTAS = {
    "tokens:1M/month@Europe/Berlin": Limit.quota(
        "tokens", 1_000_000, per="month", zone="Europe/Berlin"
    ),
    "tokens:1M/month@UTC,on=31,at=06:00,soft,hold=90s,warn=50+80": Limit.quota(
        "tokens",
        1_000_000,
        per="month",
        on=31,
        at="06:00",
        soft=True,
        hold_ttl=90,
        thresholds=(50, 80),
    ),
    "session:500k/5h@first-use": Limit.quota("session", 500_000, after_first_use="5h"),
    "usd:250USD/month@America/New_York": Limit.budget(
        "usd", "250.00", per="month", zone="America/New_York"
    ),
    "eur:0.000000001EUR/2weeks@UTC,on=sun,hold=never,warn=none": Limit.budget(
        "eur",
        "0.000000001",
        currency="EUR",
        per="week",
        every=2,
        on="sun",
        hold_ttl=None,
        thresholds=(),
    ),
    "tokens:7/quarter@UTC": Limit.quota("tokens", 7, per="month", every=3),
    "tokens:7/6hours@UTC": Limit.quota("tokens", 7, per="hour", every=6),
    "rpm:60/min,soft": Limit.per_minute("rpm", 60, soft=True),
}


@pytest.mark.parametrize("text", QUOTAS)
def test_quotas_are_read_and_written(text):
    limit = QUOTAS[text]
    assert Limit.parse(text) == limit
    assert str(limit) == text
    assert Limit.from_dict(limit.to_dict()) == limit
    if limit.is_quota and limit.hold_ttl is None:
        assert Limit.from_dict({**limit.to_dict(), "hold_ttl": "never"}) == limit
    assert Limit.from_stored(*limit.stored()) == limit


def test_blanks_around_the_zone_are_read():
    assert Limit.parse("tokens:1M/month @ UTC") == Limit.quota("tokens", 10**6, per="month")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tokens:5/month", "limit.period: a month is a calendar window, write /month@UTC"),
        ("tokens:5/month@Europe/Berln", 'limit.zone: "Europe/Berln" is unknown'),
        ("tokens:5/hour@Europe/Berlin", "limit.zone: windows below a day have no zone"),
        ("usd:0.0000000001USD/day@UTC", "limit.amount: has more than 9 decimal places"),
        ("tokens:0.5/day@UTC", "limit.amount: must be a whole number"),
        ("tokens:5/day@UTC,hard", "limit.options: must be on="),
        ("tokens:5/day@UTC,hold=1s", "limit.hold_ttl: must be None or whole seconds from 2"),
        ("tokens:5/day@UTC,warn=0", "limit.thresholds: must be whole percentages"),
        ("rpm:5/min,hold=5s", "limit.options: is only for quotas"),
    ],
)
def test_wrong_quotas_are_refused_with_a_reason(text, reason):
    with pytest.raises(ValidationError) as caught:
        Limit.parse(text)
    assert str(caught.value).startswith(reason)
