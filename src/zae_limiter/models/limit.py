"""Limits, and checks of the limits and amounts that callers pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import MILLI
from zae_limiter.naming import check_limit_name

MAX_TOKENS = 10**15  # a century of refill still fits the 38 digits of a DynamoDB number
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

DEFAULT_LEASE_TTL = 60

SECOND, MINUTE, HOUR, DAY, WEEK = 1, 60, 3600, 86_400, 7 * 86_400


class LimitName(StrEnum):
    """Names in common use; any other valid name works as well."""

    RPM = "rpm"
    TPM = "tpm"
    RPH = "rph"
    RPD = "rpd"
    TPH = "tph"
    TPD = "tpd"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of ``capacity`` tokens at once; ``refill_amount`` tokens accrue every period.

    Tokens accrue continuously. All numbers are positive, in whole tokens and whole seconds. A limit
    with a ``lease_ttl`` does not refill: it bounds the calls in flight (``Limit.concurrent``).
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int
    lease_ttl: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name, LimitName):
            object.__setattr__(self, "name", self.name.value)
        check_limit_name(self.name, "limit.name")
        if self.lease_ttl is not None:
            self._check_slots(self.lease_ttl)
            return
        for field in ("capacity", "refill_amount", "refill_period_seconds"):
            check_positive(getattr(self, field), f"limit.{field}")
        check_at_most(self.capacity, MAX_TOKENS, "limit.capacity")
        check_at_most(self.refill_amount, MAX_TOKENS, "limit.refill_amount")
        check_at_most(self.refill_period_seconds, MAX_PERIOD_SECONDS, "limit.refill_period_seconds")

    @classmethod
    def per_second(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """Allow ``rate`` tokens a second, up to ``burst`` at once."""
        return cls._per(name, rate, burst, SECOND)

    @classmethod
    def per_minute(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """Allow ``rate`` tokens a minute, up to ``burst`` at once."""
        return cls._per(name, rate, burst, MINUTE)

    @classmethod
    def per_hour(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """Allow ``rate`` tokens an hour, up to ``burst`` at once."""
        return cls._per(name, rate, burst, HOUR)

    @classmethod
    def per_day(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """Allow ``rate`` tokens a day, up to ``burst`` at once."""
        return cls._per(name, rate, burst, DAY)

    @classmethod
    def per_week(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """Allow ``rate`` tokens a week, up to ``burst`` at once."""
        return cls._per(name, rate, burst, WEEK)

    @classmethod
    def custom(
        cls, name: str, capacity: int, refill_amount: int, refill_period_seconds: int
    ) -> Limit:
        """Choose capacity and refill independently."""
        return cls(name, capacity, refill_amount, refill_period_seconds)

    @classmethod
    def concurrent(cls, name: str, n: int, lease_ttl: int = DEFAULT_LEASE_TTL) -> Limit:
        """Allow ``n`` calls in flight: each acquire holds a slot until its block ends.

        The slot is renewed while the block runs. If the process dies, the slot is free again after
        at most ``lease_ttl`` seconds.
        """
        return cls(name, n, 0, lease_ttl, lease_ttl)

    @property
    def is_concurrent(self) -> bool:
        """Whether the limit bounds the calls in flight, instead of a rate."""
        return self.lease_ttl is not None

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
        ``name:n/concurrent[:lease_ttl]``, such as ``parallel:20/concurrent:60s``. ``str(limit)``
        writes the same notation.
        """
        from zae_limiter.models.notation import parse_limit  # few callers need it: a faster import

        return parse_limit(text)

    def __str__(self) -> str:
        from zae_limiter.models.notation import format_limit

        return format_limit(self)

    @classmethod
    def _per(cls, name: str, rate: int, burst: int | None, period_seconds: int) -> Limit:
        return cls(name, rate if burst is None else burst, rate, period_seconds)

    @property
    def refill_rate(self) -> float:
        """Tokens a second."""
        return self.refill_amount / self.refill_period_seconds

    @property
    def capacity_milli(self) -> int:
        """The capacity in millitokens."""
        return self.capacity * MILLI

    @property
    def refill_amount_milli(self) -> int:
        """The refill amount in millitokens."""
        return self.refill_amount * MILLI

    @property
    def refill_period_ms(self) -> int:
        """The refill period in milliseconds."""
        return self.refill_period_seconds * 1000

    @property
    def time_to_fill_ms(self) -> int:
        """The time from empty to full; for slots, the time after which all taken ones expire."""
        if self.lease_ttl is not None:
            return self.lease_ttl * 1000
        return -(-self.capacity * self.refill_period_ms // self.refill_amount)

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as JSON values, which ``from_dict`` reads."""
        if self.lease_ttl is not None:
            return {"name": self.name, "concurrent": self.capacity, "lease_ttl": self.lease_ttl}
        return {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
        }

    @classmethod
    def from_stored(cls, name: str, capacity: int, refill: int, period_seconds: int) -> Limit:
        """Return a limit from its stored parameters. A limit without refill has slots."""
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
            return cls.concurrent(data["name"], data["concurrent"], lease_ttl)
        fields = ("name", "capacity", "refill_amount", "refill_period_seconds")
        missing = [field for field in fields if field not in data]
        if missing:
            raise ValidationError("limit", dict(data), f"lacks {', '.join(missing)}")
        return cls(*(data[field] for field in fields))


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
    return CONCURRENT_PLACES if limit.is_concurrent else 1


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
            f"{CONCURRENT_PLACES}",
        )
    names = [limit.name for limit in checked]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(field, name, "names the same limit twice")
    return checked


def check_amounts(
    amounts: object, field: str = "consume", *, signed: bool = False
) -> dict[str, int]:
    """Return a copy of ``{limit name: whole tokens}``; raise if it is not of that form.

    Negative amounts are accepted only if ``signed``.
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


def _check_amounts_one_by_one(amounts: object, field: str, signed: bool) -> dict[str, int]:
    """Check a mapping other than a dict, and raise for a wrong name or amount."""
    if not isinstance(amounts, Mapping):
        raise ValidationError(field, amounts, "must be a mapping of limit name to whole tokens")
    checked: dict[str, int] = {}
    for name, amount in amounts.items():
        if not isinstance(name, str):
            raise ValidationError(field, name, "limit names must be strings")
        if type(amount) is not int:
            raise ValidationError(f"{field}.{name}", amount, "must be a whole number of tokens")
        if amount < 0 and not signed:
            raise ValidationError(f"{field}.{name}", amount, "must not be negative")
        if amount > MAX_TOKENS or amount < -MAX_TOKENS:
            raise ValidationError(f"{field}.{name}", amount, f"must be at most {MAX_TOKENS}")
        checked[name.value if isinstance(name, LimitName) else name] = amount
    return checked
