"""The limits that apply to one call, prepared once and used for many."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from copy import copy

from zae_limiter.admission.image import Rate
from zae_limiter.admission.shards.tree import Shard, effective
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import MILLI, Limit

ALIAS = "~"  # separates name and digest of a limit that lives beside the configured one


class InForce:
    """Limits in force for one entity on one resource.

    ``version`` is the configuration count of the namespace when they were resolved. ``keys`` are
    the names under which a bucket stores them: their own, except where a call brings a limit
    that ``governing`` configuration has with other parameters. Then the call's limit lives beside
    the configured one, since switching one balance back and forth would give each the other's
    tokens. ``keep_ms`` is how long an untouched bucket is remembered; None for ever. ``fill_ms`` is
    how long the slowest limit takes from nothing to full. ``digests`` is room for a store to note
    which forms of a bucket were found to hold just these limits.
    """

    __slots__ = (
        "_shares",
        "digests",
        "fill_ms",
        "keep_ms",
        "keys",
        "known",
        "limits",
        "names",
        "rates",
        "source",
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
        self.known = frozenset(self.names)
        self.rates = tuple(Rate.of(limit) for limit in limits)
        self.keys = self.names if governing is None else self._keys_beside(governing)
        self.fill_ms = max((limit.time_to_fill_ms for limit in limits), default=0)
        self.keep_ms = self._keep_ms(ttl_multiplier)
        self._shares: dict[Shard, InForce] = {}
        self.digests: set[str] = set()

    @property
    def governing_version(self) -> int:
        """What a bucket remembers as the configuration that governs it; 0 for a call's limits."""
        return 0 if self.source is ConfigSource.OVERRIDE else self.version

    def at(self, shard: Shard) -> InForce:
        """The same limits at the rates of a shard, which is never forgotten by itself."""
        if shard.n == 1:
            return self
        found = self._shares.get(shard)
        if found is None:
            found = copy(self)
            found.rates = tuple(effective(rate, shard) for rate in self.rates)
            found.keep_ms = None
            found.digests = set()
            self._shares[shard] = found
        return found

    def rate_of(self, key: str) -> Rate:
        """The parameters of a limit by its stored name."""
        return self.rates[self.keys.index(key)]

    def amounts_milli(self, consume: Mapping[str, int]) -> tuple[int, ...]:
        """Amounts in the order of the limits; 0 for limits the call does not name."""
        return tuple([consume.get(name, 0) * MILLI for name in self.names])

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


def alias_of(name: str, rate: Rate) -> str:
    """Stored name of a limit that a call brought where configuration governs another one."""
    digest = zlib.crc32(",".join(map(str, rate)).encode())
    return f"{name}{ALIAS}{digest:08x}"


def plain_name(key: str) -> str:
    """The name users know, from a stored name."""
    return key.partition(ALIAS)[0]


def is_alias(key: str) -> bool:
    """Whether a stored name belongs to a limit that a call brought."""
    return ALIAS in key
