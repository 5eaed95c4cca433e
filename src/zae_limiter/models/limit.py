"""Limits, and checks of the limits and amounts that callers pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import BILLIONTHS, MILLI
from zae_limiter.naming import check_limit_name

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.calendar import Calendar

    Amount = int | Decimal | str  # of a call: whole tokens, or money of a budget

P = ParamSpec("P")
Period = Literal["minute", "hour", "day", "week", "month", "quarter", "year"]  # of a window
MAX_TOKENS = 10**15  # a century of refill still fits the 38 digits of a DynamoDB number
MAX_UNITS = MAX_TOKENS * MILLI // BILLIONTHS  # of money: the stored numbers are as large
MAX_PERIOD_SECONDS = 100 * 366 * 86_400  # a century
MAX_LIMITS = 32  # per call or configuration level; it bounds the size of an item and of a write
# A write may sweep and move eight numbers of held slots for each limit on calls in flight, which
# takes as much of a DynamoDB expression as four limits that refill.
CONCURRENT_PLACES = 4
MAX_SLOTS = 10**6  # more calls in flight than one bucket can be written to
# A lease is lost a second before its slots expire, and slots expire up to a second early. Of three
# seconds, at least one remains for the renewal of the lease.
MIN_LEASE_TTL = 3
MAX_LEASE_TTL = 86_400  # slots of a crashed process stay taken for at most a day
# A turn of a quota removes the holds that it finds, of several windows and moments.
QUOTA_PLACES = 3
MIN_HOLD_TTL = 2  # holds are counted in steps of half of it, in whole seconds
MAX_HOLD_TTL = 7 * 86_400
MAX_THRESHOLDS = 9  # the mark of the raised ones has one decimal digit for their number
MAX_PERCENT = 1000  # soft limits are used beyond their amount

DEFAULT_LEASE_TTL = 60
DEFAULT_HOLD_TTL = 600
DEFAULT_THRESHOLDS = (50, 80, 100)
DEFAULT_CURRENCY = "USD"

SECOND, MINUTE, HOUR, DAY, WEEK = 1, 60, 3600, 86_400, 7 * 86_400
LATE_SETTLEMENTS_MS = 2 * DAY * 1000  # a bucket is kept this long after the end of its window


class LimitName(StrEnum):
    """Names in common use; any other valid name works as well."""

    RPM = "rpm"
    TPM = "tpm"
    RPH = "rph"
    RPD = "rpd"
    TPH = "tph"
    TPD = "tpd"


def refuse_cron(cron: object) -> None:
    """Raise ValidationError for a cron expression, with the form that windows have here."""
    if cron is not None:
        raise ValidationError(
            "limit.cron",
            cron,
            'is not read: a window is per="month", on=1, at="06:00", zone="Europe/Berlin", or as '
            "text tokens:1M/month@Europe/Berlin,on=1,at=06:00",
        )


def _without_cron(make: Callable[P, Limit]) -> Callable[P, Limit]:
    """Refuse ``cron=`` with advice; other unknown keywords raise a TypeError, as anywhere."""

    @wraps(make)
    def made(*args: P.args, **keywords: P.kwargs) -> Limit:
        refuse_cron(keywords.get("cron"))
        return make(*args, **keywords)

    return made


@dataclass(frozen=True, slots=True)
class FirstUse:
    """A window that begins with the first charge after the window before, and has one length."""

    seconds: int

    def __post_init__(self) -> None:
        check_positive(self.seconds, "limit.after_first_use")
        check_at_most(self.seconds, MAX_PERIOD_SECONDS, "limit.after_first_use")

    @property
    def length_ms(self) -> int:
        """The length of the window."""
        return self.seconds * 1000

    longest_ms = length_ms


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of ``capacity`` tokens at once; ``refill_amount`` tokens accrue every period.

    Tokens accrue continuously. All numbers are positive, in whole tokens and whole seconds. A limit
    with a ``lease_ttl`` does not refill: it bounds the calls in flight (``Limit.concurrent``). A
    limit with a ``window`` is a quota: it is full again when a window begins, and not before
    (``Limit.quota``). A quota with a ``currency`` is a budget, whose ``capacity`` is in billionths
    of the currency unit (``Limit.budget``); ``amount`` is the same in currency units.

    A ``soft`` limit never rejects: its level goes below zero. ``hold_ttl`` and ``thresholds`` are
    those of a quota.
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int
    lease_ttl: int | None = None
    window: Calendar | FirstUse | None = None
    soft: bool = False
    hold_ttl: int | None = None
    thresholds: tuple[int, ...] = ()
    currency: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name, LimitName):
            object.__setattr__(self, "name", self.name.value)
        check_limit_name(self.name, "limit.name")
        if type(self.soft) is not bool:
            raise ValidationError("limit.soft", self.soft, "must be True or False")
        if self.window is not None:
            self._check_quota()
            return
        if self.currency is not None or self.hold_ttl is not None or self.thresholds:
            raise ValidationError(
                "limit.window", None, "is missing: budgets, holds and thresholds are for quotas"
            )
        if self.lease_ttl is not None:
            self._check_slots(self.lease_ttl)
            return
        for field in ("capacity", "refill_amount", "refill_period_seconds"):
            check_positive(getattr(self, field), f"limit.{field}")
        check_at_most(self.capacity, MAX_TOKENS, "limit.capacity")
        check_at_most(self.refill_amount, MAX_TOKENS, "limit.refill_amount")
        check_at_most(self.refill_period_seconds, MAX_PERIOD_SECONDS, "limit.refill_period_seconds")

    @classmethod
    def per_second(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> Limit:
        """Allow ``rate`` tokens a second, up to ``burst`` at once."""
        return cls._per(name, rate, burst, SECOND, soft)

    @classmethod
    def per_minute(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> Limit:
        """Allow ``rate`` tokens a minute, up to ``burst`` at once."""
        return cls._per(name, rate, burst, MINUTE, soft)

    @classmethod
    def per_hour(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> Limit:
        """Allow ``rate`` tokens an hour, up to ``burst`` at once."""
        return cls._per(name, rate, burst, HOUR, soft)

    @classmethod
    def per_day(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> Limit:
        """Allow ``rate`` tokens a day, up to ``burst`` at once."""
        return cls._per(name, rate, burst, DAY, soft)

    @classmethod
    def per_week(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> Limit:
        """Allow ``rate`` tokens a week, up to ``burst`` at once."""
        return cls._per(name, rate, burst, WEEK, soft)

    @classmethod
    def per_month(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> NoReturn:
        """Raise ValidationError: a month has no fixed length, so it is the window of a quota."""
        raise _no_fixed_length("month", name, rate)

    @classmethod
    def per_year(
        cls, name: str, rate: int, burst: int | None = None, *, soft: bool = False
    ) -> NoReturn:
        """Raise ValidationError: a year has no fixed length, so it is the window of a quota."""
        raise _no_fixed_length("year", name, rate)

    @classmethod
    def custom(
        cls,
        name: str,
        capacity: int,
        refill_amount: int,
        refill_period_seconds: int,
        *,
        soft: bool = False,
    ) -> Limit:
        """Choose capacity and refill independently."""
        return cls(name, capacity, refill_amount, refill_period_seconds, soft=soft)

    @classmethod
    @_without_cron
    def quota(
        cls,
        name: str,
        amount: int,
        *,
        per: Period | None = None,
        every: int = 1,
        zone: str = "UTC",
        on: int | str | None = None,
        at: str = "00:00",
        after_first_use: str | int | None = None,
        soft: bool = False,
        hold_ttl: int | None = DEFAULT_HOLD_TTL,
        thresholds: Iterable[int] = DEFAULT_THRESHOLDS,
    ) -> Limit:
        """Allow ``amount`` tokens in each window; unspent tokens and debts end with the window.

        A window begins every ``every`` hours, days, weeks, months, quarters or years (``per``), at
        the time ``at`` of a time zone; weeks on the weekday ``on``, months on the day ``on``. With
        ``after_first_use="5h"`` it begins with the first charge after the window before.

        The tokens of a call are held until its block ends. If the process dies, they return after
        at most 1.5 times ``hold_ttl`` seconds; with None they stay taken until the window ends. An
        event is raised once per window when a percentage of ``thresholds`` is used.
        """
        window = _window(per, every, zone, on, at, after_first_use)
        return cls._quota(name, amount, window, soft, hold_ttl, thresholds)

    @classmethod
    @_without_cron
    def budget(
        cls,
        name: str,
        amount: Decimal | str | int,
        *,
        currency: str = DEFAULT_CURRENCY,
        per: Period | None = None,
        every: int = 1,
        zone: str = "UTC",
        on: int | str | None = None,
        at: str = "00:00",
        after_first_use: str | int | None = None,
        soft: bool = False,
        hold_ttl: int | None = DEFAULT_HOLD_TTL,
        thresholds: Iterable[int] = DEFAULT_THRESHOLDS,
    ) -> Limit:
        """Allow ``amount`` of money in each window; see ``Limit.quota``.

        Amounts are in currency units, with up to nine decimal places: a Decimal, a text or a whole
        number. A float raises ValidationError, since most prices have no exact float, and so does
        the code of another currency as the name: ``eur`` with the currency USD.
        """
        from zae_limiter.models.money import exact_billionths  # rates need no decimal numbers

        window = _window(per, every, zone, on, at, after_first_use)
        billionths = exact_billionths(amount, "limit.amount")
        if billionths <= 0:
            raise ValidationError("limit.amount", amount, "must be greater than zero")
        return cls._quota(name, billionths, window, soft, hold_ttl, thresholds, currency)

    @classmethod
    def _quota(
        cls,
        name: str,
        capacity: int,
        window: Calendar | FirstUse,
        soft: bool,
        hold_ttl: int | None,
        thresholds: Iterable[int],
        currency: str | None = None,
    ) -> Limit:
        """Make a quota; its refill amount and period are the amount and the length of a window."""
        return cls(
            name,
            capacity,
            capacity,
            window.length_ms // 1000,
            window=window,
            soft=soft,
            hold_ttl=hold_ttl,
            thresholds=_checked_thresholds(thresholds),
            currency=currency,
        )

    @classmethod
    def concurrent(
        cls, name: str, n: int, lease_ttl: int = DEFAULT_LEASE_TTL, *, soft: bool = False
    ) -> Limit:
        """Allow ``n`` calls in flight: each acquire holds a slot until its block ends.

        The slot is renewed while the block runs. If the process dies, the slot is free again after
        at most ``lease_ttl`` seconds.
        """
        return cls(name, n, 0, lease_ttl, lease_ttl, soft=soft)

    @property
    def is_concurrent(self) -> bool:
        """Whether the limit bounds the calls in flight, instead of a rate."""
        return self.lease_ttl is not None

    @property
    def is_quota(self) -> bool:
        """Whether the limit is a quota or budget: full again when a window begins."""
        return self.window is not None

    @property
    def amount(self) -> int | Decimal:
        """The capacity as users write it: whole tokens, or currency units of a budget."""
        return self.shown(self.capacity_milli)

    def shown(self, units: int) -> int | Decimal:
        """Return stored units as users see them: whole tokens, or currency units of a budget."""
        if self.currency is None:
            return units // MILLI
        from zae_limiter.models.money import in_currency

        return in_currency(units)

    def _check_quota(self) -> None:
        check_positive(self.capacity, "limit.amount")
        most = MAX_TOKENS if self.currency is None else MAX_TOKENS * MILLI
        check_at_most(self.capacity, most, "limit.amount")
        if self.lease_ttl is not None:
            raise ValidationError("limit.lease_ttl", self.lease_ttl, "is not for quotas")
        hold_ttl = self.hold_ttl
        if hold_ttl is not None and (
            type(hold_ttl) is not int or not MIN_HOLD_TTL <= hold_ttl <= MAX_HOLD_TTL
        ):
            raise ValidationError(
                "limit.hold_ttl",
                hold_ttl,
                f"must be None or whole seconds from {MIN_HOLD_TTL} to {MAX_HOLD_TTL}",
            )
        currency = self.currency
        if currency is not None and not (
            isinstance(currency, str)
            and len(currency) == 3
            and currency.isascii()
            and currency.isupper()
        ):
            raise ValidationError(
                "limit.currency", currency, "must be three capital letters, such as USD"
            )
        if len(self.name) == 3:
            from zae_limiter.models.currencies import check_name  # rates do not need it

            check_name(self)

    def _check_slots(self, lease_ttl: int) -> None:
        check_positive(self.capacity, "limit.n")
        check_at_most(self.capacity, MAX_SLOTS, "limit.n")
        if type(lease_ttl) is not int or not MIN_LEASE_TTL <= lease_ttl <= MAX_LEASE_TTL:
            raise ValidationError(
                "limit.lease_ttl",
                lease_ttl,
                f"must be whole seconds from {MIN_LEASE_TTL} to {MAX_LEASE_TTL}",
            )
        if self.refill_amount != 0 or self.refill_period_seconds != lease_ttl:
            raise ValidationError(
                "limit.lease_ttl", lease_ttl, "is only for limits made by Limit.concurrent()"
            )

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read ``name:rate[/period][:burst]``, as ``-l`` of the command line takes it.

        The period is ``sec``, ``min`` (the default), ``hour``, ``day`` or ``week``, or a number of
        them: ``Limit.parse("batch:1/90s:5")``. Calls in flight are
        ``name:n/concurrent[:lease_ttl]``, such as ``parallel:20/concurrent:60s``. Either is soft
        with ``,soft`` at its end. A quota has its time zone behind an ``@``, and options behind
        commas: ``tokens:1M/month@Europe/Berlin,on=31,soft,hold=10m,warn=50+80+100``, a budget
        its currency behind the amount: ``usd:250USD/month@UTC``. ``str(limit)`` writes the same
        notation.
        """
        from zae_limiter.models.notation import parse_limit  # few callers need it: a faster import

        return parse_limit(text)

    def __str__(self) -> str:
        from zae_limiter.models.notation import format_limit

        return format_limit(self)

    @classmethod
    def _per(
        cls, name: str, rate: int, burst: int | None, period_seconds: int, soft: bool
    ) -> Limit:
        capacity = rate if burst is None else burst
        return cls(name, capacity, rate, period_seconds, soft=soft)

    @property
    def refill_rate(self) -> float:
        """Tokens a second."""
        return self.refill_amount / self.refill_period_seconds

    @property
    def capacity_milli(self) -> int:
        """The capacity in millitokens; of a budget in billionths of the currency unit."""
        return self.capacity if self.currency is not None else self.capacity * MILLI

    @property
    def refill_amount_milli(self) -> int:
        """The refill amount in millitokens; of a budget in billionths of the currency unit."""
        return self.refill_amount if self.currency is not None else self.refill_amount * MILLI

    @property
    def refill_period_ms(self) -> int:
        """The refill period in milliseconds."""
        return self.refill_period_seconds * 1000

    @property
    def time_to_fill_ms(self) -> int:
        """The time from empty to full; for slots, the time after which all taken ones expire.

        For a quota it is the length of a window, and two days more for late settlements.
        """
        if self.window is not None:
            return self.window.longest_ms + LATE_SETTLEMENTS_MS
        if self.lease_ttl is not None:
            return self.lease_ttl * 1000
        return -(-self.capacity * self.refill_period_ms // self.refill_amount)

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as JSON values, which ``from_dict`` reads."""
        if self.lease_ttl is not None:
            slots = {"name": self.name, "concurrent": self.capacity, "lease_ttl": self.lease_ttl}
            return {**slots, "soft": True} if self.soft else slots
        if self.window is not None:
            from zae_limiter.models.quota_fields import quota_fields  # rates do not need it

            return {"name": self.name, **quota_fields(self)}
        rate: dict[str, Any] = {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
        }
        return {**rate, "soft": True} if self.soft else rate

    def stored(self) -> tuple[str, int, int, int] | tuple[str, int, int, int, str]:
        """Return the parameters as a store keeps them; ``from_stored`` reads them.

        A limit that has more parameters than a rate has its notation at the end.
        """
        fields = (self.name, self.capacity, self.refill_amount, self.refill_period_seconds)
        return fields if self.window is None and not self.soft else (*fields, str(self))

    @classmethod
    def from_stored(
        cls, name: str, capacity: int, refill: int, period_seconds: int, notation: str = ""
    ) -> Limit:
        """Return a limit from its stored parameters. A limit without refill has slots."""
        if notation:
            return cls.parse(notation)
        if refill == 0:
            return cls.concurrent(name, capacity, period_seconds)
        return cls(name, capacity, refill, period_seconds)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """Return the limit from a mapping that ``to_dict`` made."""
        if not isinstance(data, Mapping):
            raise ValidationError("limit", data, "must be a mapping")
        if "concurrent" in data and "name" in data:
            lease_ttl = data.get("lease_ttl", DEFAULT_LEASE_TTL)
            soft = data.get("soft", False)
            return cls.concurrent(data["name"], data["concurrent"], lease_ttl, soft=soft)
        if "quota" in data or "budget" in data:
            from zae_limiter.models.quota_fields import quota_from

            return quota_from(data)
        fields = ("name", "capacity", "refill_amount", "refill_period_seconds")
        missing = [field for field in fields if field not in data]
        if missing:
            raise ValidationError("limit", dict(data), f"lacks {', '.join(missing)}")
        name, capacity, amount, period = (data[field] for field in fields)
        return cls(name, capacity, amount, period, soft=data.get("soft", False))


def _no_fixed_length(unit: str, name: str, amount: int) -> ValidationError:
    return ValidationError(
        f"Limit.per_{unit}",
        name,
        f"does not exist: a {unit} has no fixed length, so nothing accrues at its rate; a calendar "
        f'window is Limit.quota({name!r}, {amount!r}, per="{unit}")',
    )


def no_budget(field: str, amount: object) -> ValidationError:
    """Return the error of an amount that is no whole number, for a limit of tokens."""
    return ValidationError(field, str(amount), "must be a whole number: the limit is no budget")


def check_positive(value: object, field: str) -> int:
    """Accept a whole number above zero; booleans, floats and NaN are refused."""
    if type(value) is not int:
        raise ValidationError(field, value, "must be a whole number")
    if value <= 0:
        raise ValidationError(field, value, "must be greater than zero")
    return value


def check_at_most(value: int, maximum: int, field: str) -> None:
    if value > maximum:
        raise ValidationError(field, value, f"must be at most {maximum}")


def places_of(limit: Limit) -> int:
    """Return the share of ``MAX_LIMITS`` that a limit takes."""
    if limit.is_concurrent:
        return CONCURRENT_PLACES
    return QUOTA_PLACES if limit.is_quota else 1


def check_limits(limits: object, field: str = "limits") -> tuple[Limit, ...]:
    """Return the limits as a tuple; raise unless there is at least one and no name occurs twice."""
    if isinstance(limits, Limit | str | Mapping) or not isinstance(limits, Iterable):
        raise ValidationError(field, limits, "must be a list of Limit")
    checked = tuple(limits)
    for limit in checked:
        if not isinstance(limit, Limit):
            raise ValidationError(field, limit, "must be a list of Limit")
    if not checked:
        raise ValidationError(field, [], "must not be empty")
    if sum(map(places_of, checked)) > MAX_LIMITS:
        raise ValidationError(
            field,
            len(checked),
            f"may hold at most {MAX_LIMITS} limits; one on calls in flight counts as "
            f"{CONCURRENT_PLACES}, a quota as {QUOTA_PLACES}",
        )
    names = [limit.name for limit in checked]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(field, name, "names the same limit twice")
    return checked


def _window(
    per: str | None,
    every: int,
    zone: str,
    on: int | str | None,
    at: str,
    after_first_use: str | int | None,
) -> Calendar | FirstUse:
    """Return the window of a quota, by the calendar or from its first use."""
    if after_first_use is not None:
        if per is not None:
            raise ValidationError("limit.per", per, "and after_first_use exclude each other")
        if isinstance(after_first_use, str):
            from zae_limiter.models.notation import parse_period

            after_first_use = parse_period(after_first_use)
        return FirstUse(after_first_use)
    if per is None:
        raise ValidationError("limit.per", None, 'is missing: write per="month", for example')
    from zae_limiter.models.calendar import Calendar

    return Calendar.of(per, every, zone, on, at)


def _checked_thresholds(thresholds: object) -> tuple[int, ...]:
    """Return percentages in rising order; raise ValidationError if they are none."""
    if isinstance(thresholds, str | Mapping) or not isinstance(thresholds, Iterable):
        raise ValidationError("limit.thresholds", thresholds, "must be a list of percentages")
    percentages = tuple(thresholds)
    if any(type(each) is not int or not 1 <= each <= MAX_PERCENT for each in percentages):
        raise ValidationError(
            "limit.thresholds", percentages, f"must be whole percentages from 1 to {MAX_PERCENT}"
        )
    in_order = tuple(sorted(set(percentages)))
    if len(in_order) > MAX_THRESHOLDS:
        raise ValidationError(
            "limit.thresholds", len(in_order), f"are too many: at most {MAX_THRESHOLDS}"
        )
    return in_order


def check_amounts(
    amounts: object, field: str = "consume", *, signed: bool = False
) -> dict[str, Any]:
    """Return a copy of ``{limit name: amount}``; raise if it is not of that form.

    An amount is a number of whole tokens, or of currency units of a budget: these may be Decimal or
    text, and are returned as Decimal. Negative amounts are accepted only if ``signed``.
    """
    least = -MAX_TOKENS if signed else 0
    if type(amounts) is dict:
        for name, amount in amounts.items():
            if type(name) is not str or type(amount) is not int:
                break
            if not least <= amount <= MAX_TOKENS:
                break
        else:
            return amounts.copy()
    return _check_amounts_one_by_one(amounts, field, signed)


def _check_amounts_one_by_one(amounts: object, field: str, signed: bool) -> dict[str, Any]:
    """Check a mapping other than a dict, and raise for a wrong name or amount."""
    if not isinstance(amounts, Mapping):
        raise ValidationError(field, amounts, "must be a mapping of limit name to whole tokens")
    checked: dict[str, Any] = {}
    for name, amount in amounts.items():
        if not isinstance(name, str):
            raise ValidationError(field, name, "limit names must be strings")
        checked[name.value if isinstance(name, LimitName) else name] = _checked_amount(
            f"{field}.{name}", amount, signed
        )
    return checked


def plain_amounts(amounts: Mapping[str, Any]) -> dict[str, int | str]:
    """Return amounts as JSON values: money is a text."""
    return {
        name: amount if type(amount) is int else f"{amount:f}" for name, amount in amounts.items()
    }


def _checked_amount(field: str, amount: object, signed: bool) -> Any:
    """Return a whole number as it is, and money as a Decimal with nine decimal places."""
    if type(amount) is not int:
        from zae_limiter.models.money import is_money, rounded_up

        if not is_money(amount):
            raise ValidationError(
                field, amount, "must be a whole number of tokens; money is a Decimal or a text"
            )
        amount = rounded_up(amount, field)
    if amount < 0 and not signed:
        raise ValidationError(field, amount, "must not be negative")
    if amount > MAX_TOKENS or amount < -MAX_TOKENS:
        raise ValidationError(field, amount, f"must be at most {MAX_TOKENS}")
    return amount
