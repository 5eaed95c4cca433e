"""The limits in force, prepared once and used for many calls."""

from __future__ import annotations

from collections.abc import Container, Mapping
from copy import copy
from typing import TYPE_CHECKING

from zae_limiter.admission.image import (
    BucketImage,
    Rate,
    full_at_ms,
    is_quota,
    is_slots,
    is_soft,
)
from zae_limiter.admission.shards.tree import Shard, effective
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import MAX_UNITS
from zae_limiter.models.timestamps import BILLIONTHS, MILLI
from zae_limiter.naming import usage_name

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.limit import Limit

DAY_MS = 86_400_000
CENTURY_MS = 100 * 366 * DAY_MS  # a bucket with a TTL as far away as this never expires
WEEK_MS = 7 * DAY_MS  # added to the retention of usage: so the TTL is written once a week
ALIAS = "~"  # separates name and digest of a call's limit; no limit name contains it


class InForce:
    """Limits in force for one entity on one resource.

    ``version`` is the configuration version of the namespace when the limits were resolved.

    ``keys`` are the names under which a bucket stores the limits. A limit is stored under its own
    name, unless a call brings a limit that the ``governing`` configuration has with other
    parameters. Then the call's limit is stored under a key of its own, beside the configured one:
    with one shared balance, each of the two would get the other's tokens.

    ``slot_keys`` are the keys of limits on calls in flight, ``token_names`` the names of all other
    limits, ``quota_keys`` the keys of quotas, ``soft_keys`` those of limits that never reject, and
    ``budget_names`` the names of limits whose amounts are money; ``has_terms`` is True if one of
    them is a quota or soft. ``keep_ms`` is the TTL of an unused bucket; with None the bucket is
    kept for ever. ``fill_ms`` is the time that the slowest limit takes from empty to full. In
    ``digests`` a store notes the digests of stored buckets that hold all of these limits.
    """

    __slots__ = (
        "_named_keys",
        "_shares",
        "budget_names",
        "digests",
        "fill_ms",
        "has_terms",
        "keep_ms",
        "keyed_rates",
        "keys",
        "limits",
        "name_set",
        "names",
        "quota_keys",
        "rates",
        "slot_keys",
        "soft_keys",
        "source",
        "token_names",
        "version",
    )

    def __init__(
        self,
        limits: tuple[Limit, ...],
        source: ConfigSource,
        version: int,
        ttl_multiplier: int = 0,
        governing: InForce | None = None,
    ) -> None:
        self.limits = limits
        self.source = source
        self.version = version
        self.names = tuple(limit.name for limit in limits)
        self.name_set = frozenset(self.names)
        self.rates = tuple(Rate.of(limit) for limit in limits)
        self.keys = self.names if governing is None else self._keys_beside(governing)
        self._named_keys = tuple(zip(self.names, self.keys, strict=True))
        self.keyed_rates = tuple(zip(self.keys, self.rates, strict=True))
        self.slot_keys = tuple(key for key, rate in self.keyed_rates if is_slots(rate))
        self.quota_keys = tuple(key for key, rate in self.keyed_rates if is_quota(rate))
        self.soft_keys = frozenset(key for key, rate in self.keyed_rates if is_soft(rate))
        self.has_terms = any(rate.terms is not None for rate in self.rates)
        self.budget_names = frozenset(each.name for each in limits if each.currency is not None)
        self.token_names = self.name_set - {plain_name(key) for key in self.slot_keys}
        self.fill_ms = max((limit.time_to_fill_ms for limit in limits), default=0)
        self.keep_ms = self._keep_ms(ttl_multiplier)
        self._shares: dict[Shard, InForce] = {}
        self.digests: set[str] = set()

    @property
    def held_keys(self) -> tuple[str, ...]:
        """The keys of limits of which calls hold something until they end: slots and quotas.

        The first shard of a split bucket has all of them.
        """
        return self.slot_keys + self.quota_keys

    @property
    def governing_version(self) -> int:
        """The configuration version that is stored in a bucket; 0 for a call's limits."""
        return 0 if self.source is ConfigSource.OVERRIDE else self.version

    def at(self, shard: Shard) -> InForce:
        """Return the same limits with the rates of a shard. A shard has no TTL of its own."""
        if shard.n == 1:
            return self
        share = self._shares.get(shard)
        if share is None:
            share = copy(self)
            share.rates = tuple(effective(rate, shard) for rate in self.rates)
            share.keyed_rates = tuple(zip(share.keys, share.rates, strict=True))
            share.keep_ms = None
            share.digests = set()
            self._shares[shard] = share
        return share

    def rate_of(self, key: str) -> Rate:
        """Return the rate of a limit by its stored name."""
        return self.rates[self.keys.index(key)]

    def has_quota_among(self, keys: Container[str]) -> bool:
        """Tell whether one of these limits, given by stored names, is a quota."""
        return any(key in keys for key in self.quota_keys)

    def amounts_milli(self, consume: Mapping[str, int]) -> dict[str, int]:
        """Return the amount of every limit by stored name; 0 if the call does not name a limit."""
        if self.budget_names:
            return {
                key: stored_units(consume.get(name, 0), name in self.budget_names)
                for name, key in self._named_keys
            }
        return {key: consume.get(name, 0) * MILLI for name, key in self._named_keys}

    def add_slots(self, amounts_milli: dict[str, int], consume: Mapping[str, int]) -> None:
        """Add one slot for each limit on calls in flight that an acquire does not name."""
        for key in self.slot_keys:
            if plain_name(key) not in consume:
                amounts_milli[key] = MILLI

    def usage_name(self, key: str) -> str:
        """Return the name under which usage of a stored limit is counted."""
        for known, limit in zip(self.keys, self.limits, strict=True):
            if known == key:
                return usage_name(plain_name(key), limit.currency)
        return plain_name(key)

    def extended_ttl(self, expires_ms: int | None, now_ms: int, usage_ms: int = 0) -> int | None:
        """Return the TTL of a bucket, extended if less than half of its time remains.

        The TTL is not extended with every charge, since that would make every write larger. If the
        bucket itself stores its last hour of usage, it is kept for ``usage_ms`` after that day.
        """
        keep_ms = self.keep_ms
        if keep_ms is None:
            return None
        if usage_ms:
            usage_ms += DAY_MS  # the retention begins at the end of the day
        if expires_ms is not None:
            left_ms = expires_ms - now_ms
            if left_ms > keep_ms // 2 and left_ms > usage_ms:
                return expires_ms
        if usage_ms:
            keep_ms = max(keep_ms, usage_ms + WEEK_MS)
        return now_ms + keep_ms if keep_ms < CENTURY_MS else None

    def outlasts_refill(self, until_ms: int | None, limit_count: int, now_ms: int) -> bool:
        """Tell whether a bucket without debts is certainly full by ``until_ms``, at any level.

        ``limit_count`` is the number of limits in the bucket. If the bucket holds more than the
        limits in force, the others may take longer to fill.
        """
        return until_ms is None or (
            until_ms - now_ms >= self.fill_ms and limit_count == len(self.keys)
        )

    def _keys_beside(self, governing: InForce) -> tuple[str, ...]:
        configured = dict(zip(governing.names, governing.rates, strict=True))
        return tuple(
            name if configured.get(name, rate) == rate else alias_of(name, rate)
            for name, rate in zip(self.names, self.rates, strict=True)
        )

    def _keep_ms(self, ttl_multiplier: int) -> int | None:
        if self.source.is_entity_level or ttl_multiplier <= 0:
            return None
        return self.fill_ms * ttl_multiplier


def stored_units(amount: int | Decimal, is_money: bool) -> int:
    """Return an amount of a call in stored units: thousandths, or billionths of money."""
    if not is_money:
        return int(amount) * MILLI
    if type(amount) is int:
        return amount * BILLIONTHS
    from zae_limiter.models.money import billionths_of  # rates need no decimal numbers

    return billionths_of(amount)


def check_money(amounts: Mapping[str, int | Decimal], names: Container[str], field: str) -> None:
    """Raise if an amount of a budget is larger than any budget; ``names`` are those of budgets.

    ``amounts`` have passed ``check_amounts``, which has looked at each Decimal.
    """
    for name, amount in amounts.items():
        if type(amount) is int and abs(amount) > MAX_UNITS and name in names:
            from zae_limiter.models.money import check_units  # rates need no decimal numbers

            check_units(amount, f"{field}.{name}")


def alias_of(name: str, rate: Rate) -> str:
    """Return the stored name of a call's limit beside a configured one of the same name.

    The name comes from the stored form of the rate, so it changes only when that form changes. With
    another name, every caller that brings the limit would have a full bucket.
    """
    # Imported here: hashing adds 2 ms to the import of the package, and the notation 3 ms.
    from hashlib import blake2s

    from zae_limiter.admission.rate_text import stored_text

    # Two limits with the same digest would share a balance. With 64 bits, the chance that this
    # happens among a million different limits is 1 in 37 million.
    digest = blake2s(stored_text(rate).encode(), digest_size=8).hexdigest()
    return f"{name}{ALIAS}{digest}"


def plain_name(key: str) -> str:
    """Return the name of a limit as users know it, from its stored name."""
    return key.partition(ALIAS)[0]


def is_alias(key: str) -> bool:
    """Tell whether a stored name belongs to a limit that a call brought."""
    return ALIAS in key


def expires_ms(image: BucketImage, in_force: InForce, now_ms: int, usage_ms: int = 0) -> int | None:
    """Return the moment at which the bucket may expire; None if it never does.

    ``usage_ms`` is the retention of usage.
    """
    until = in_force.extended_ttl(image.expires_ms, now_ms, usage_ms)
    if until is None:
        return None
    full_ms = full_at_ms(image)
    return max(until, full_ms) if full_ms - now_ms < CENTURY_MS else None


def is_too_early(image: BucketImage) -> bool:
    """Tell whether the bucket would expire before it is full."""
    return image.expires_ms is not None and image.expires_ms < full_at_ms(image)
