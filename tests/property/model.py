"""What the limiter must do, once more: classic token buckets in exact rational arithmetic.

Written from the documents alone; it shares no formula with the package. A pot is one limit of
one bucket: a level at a moment, that grows by rate times time up to the capacity. The package
rounds to millitokens, so the model answers with what is certain and what rounding may decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from zae_limiter import Limit

MILLI = Fraction(1, 1000)
HOUR_MS = 3_600_000
NO_ENTITY = ANYTHING = ""  # key parts of resource and system defaults
DEFAULT = "_default_"

Key = str | tuple[str, Limit]  # a limit's name; with the limit where a call brought it beside


class Doubt(Exception):
    """Rounding decides; the model has no opinion."""


def rate(limit: Limit) -> Fraction:
    """Tokens a millisecond."""
    return Fraction(limit.refill_amount, limit.refill_period_seconds * 1000)


@dataclass
class Pot:
    limit: Limit
    level: Fraction
    at_ms: int
    net: int = 0
    counted: int = 0  # the net consumption when the hour began
    rebased: int = 0  # each may be a millitoken off, either way

    def unbounded(self, now_ms: int) -> Fraction:
        return self.level + rate(self.limit) * (now_ms - self.at_ms)

    def level_at(self, now_ms: int) -> Fraction:
        return min(Fraction(self.limit.capacity), self.unbounded(now_ms))

    def least(self, now_ms: int) -> Fraction:
        """The package shows at least this much."""
        return self.level_at(now_ms) - self.rebased * MILLI

    def most(self, now_ms: int) -> Fraction:
        """The package shows less than this, or the capacity."""
        return self.level_at(now_ms) + (1 + self.rebased) * MILLI

    def set(self, level: Fraction, now_ms: int) -> None:
        self.level, self.at_ms = min(Fraction(self.limit.capacity), level), now_ms

    def is_full(self, now_ms: int) -> bool:
        if self.unbounded(now_ms) - self.rebased * MILLI >= self.limit.capacity:
            return True
        if self.unbounded(now_ms) + (1 + self.rebased) * MILLI <= self.limit.capacity:
            return False
        raise Doubt

    def at_limit(self, limit: Limit, now_ms: int) -> Pot:
        """The same level under another limit."""
        moved = replace(self, limit=limit, rebased=self.rebased + 1)
        moved.set(self.level_at(now_ms), now_ms)
        return moved

    def wait_ms(self, amount: int, now_ms: int) -> tuple[int, int]:
        """The least and the most that the package may say."""
        missing = amount - self.level_at(now_ms)
        soonest = math.ceil((missing - (1 + self.rebased) * MILLI) / rate(self.limit))
        latest = math.ceil((missing + self.rebased * MILLI) / rate(self.limit))
        return max(0, soonest), max(0, latest)


@dataclass(frozen=True)
class Share:
    """One bucket that a call concerns, and the limits in force there, each where it lives."""

    entity: str
    resource: str
    limits: tuple[Limit, ...]
    keys: tuple[Key, ...]
    of_entity: bool
    of_child: frozenset[str] = frozenset()  # names of the limits that a child counts, too
    of_call: bool = False  # the limits are those of a call

    @property
    def names(self) -> list[str]:
        return [limit.name for limit in self.limits]

    @property
    def places(self) -> Iterator[tuple[Key, Limit]]:
        return zip(self.keys, self.limits, strict=True)


@dataclass
class Bucket:
    pots: dict[Key, Pot]
    hour: int
    may_be_forgotten: bool = False
    paused_until_ms: int = 0

    def copy(self) -> Bucket:
        return replace(self, pots={key: replace(pot) for key, pot in self.pots.items()})

    def roll(self, now_ms: int) -> None:
        if now_ms // HOUR_MS > self.hour:
            self.hour = now_ms // HOUR_MS
            for pot in self.pots.values():
                pot.counted = pot.net

    def bring_to(self, share: Share, now_ms: int, through: Collection[str]) -> None:
        """Let the limits in force apply; others go when they are full, and no usage with them.

        ``through`` are the names that children have used in this hour. Configured limits stay where
        a call brings its own.
        """
        differs = False
        for key, limit in share.places:
            known = self.pots.get(key)
            if known is None:
                self.add(key, limit, now_ms)
            elif known.limit != limit:
                self.pots[key] = known.at_limit(limit, now_ms)
            differs |= known is None or known.limit != limit
        if differs:
            used = {name_of(key) for key, pot in self.pots.items() if pot.net != pot.counted}
            used |= set(through)
            others = [key for key in self.pots if key not in share.keys]
            for key in sorted(others, key=is_plain):
                if not (share.of_call and is_plain(key)):
                    self._drop_if_full(key, now_ms, is_used=name_of(key) in used)

    def add(self, key: Key, limit: Limit, now_ms: int) -> Pot:
        pot = self.pots[key] = Pot(limit, Fraction(limit.capacity), now_ms)
        return pot

    def _drop_if_full(self, key: Key, now_ms: int, *, is_used: bool) -> None:
        others = [each for each in self.pots if each != key and name_of(each) == name_of(key)]
        if (others or not is_used) and self.pots[key].is_full(now_ms):
            gone = self.pots.pop(key)
            if others:
                heir = name_of(key) if name_of(key) in others else others[0]
                self.pots[heir].net += gone.net - gone.counted


@dataclass
class Part:
    """One bucket of a plan."""

    share: Share
    bucket: Bucket
    amounts: list[int]

    def pots(self) -> Iterator[tuple[Key, Pot, int]]:
        for key, amount in zip(self.share.keys, self.amounts, strict=True):
            yield key, self.bucket.pots[key], amount


@dataclass
class Entry:
    """``taken`` includes debts; ``admitted`` tells which entries the limiter could refuse."""

    capacity: int
    accrued: Fraction
    taken: int = 0
    given: int = 0
    admitted: bool = False
    starts_anew: bool = False


@dataclass
class Log:
    """All that happened to one limit, to check every window of it."""

    limit: Limit
    at_ms: int
    accrued: Fraction = Fraction(0)
    rebased: int = 0
    dormant: bool = False  # the limit, or its bucket, was forgotten because it was full
    entries: list[Entry] = field(default_factory=list)

    def follow(self, limit: Limit, now_ms: int) -> None:
        self.accrued += rate(self.limit) * (now_ms - self.at_ms)
        self.at_ms = now_ms
        self.rebased += limit != self.limit
        self.limit = limit

    def note(self, **what: int | bool) -> None:
        self.entries.append(Entry(self.limit.capacity, self.accrued, **what))

    def check(self) -> None:
        """Between any two grants: no more than capacity, what accrued, and what was given back."""
        for first, start in enumerate(self.entries):
            if not start.admitted:
                continue
            taken = given = 0
            for entry in self.entries[first:]:
                if entry.starts_anew:
                    break
                taken, given = taken + entry.taken, given + entry.given
                room = start.capacity + entry.accrued - start.accrued + given
                if entry.admitted:
                    assert taken < room + (1 + self.rebased) * MILLI, (start, entry, taken, room)


@dataclass
class Hold:
    """What one charge took and the lease still holds."""

    shares: list[Share]
    amounts: dict[str, int]

    @property
    def names(self) -> set[str]:
        return {name for share in self.shares for name in share.names}


@dataclass
class Lease:
    entity: str
    resource: str
    override: tuple[Limit, ...] | None
    holds: list[Hold]
    keeps: bool = False  # what it costs if its block fails
    pending: dict[str, int] = field(default_factory=dict)  # what is not written yet
    kept: dict[str, int] = field(default_factory=dict)  # what was settled: stays after a failure

    @property
    def names(self) -> set[str]:
        return set().union(*(hold.names for hold in self.holds))

    def held(self, name: str) -> int:
        return sum(hold.amounts.get(name, 0) for hold in self.holds)

    def consumed(self) -> dict[str, int]:
        named = {name for hold in self.holds for name in hold.amounts} | self.pending.keys()
        return {name: self.held(name) + self.pending.get(name, 0) for name in named}

    def lower_kept(self) -> None:
        """A failure never costs more than a success."""
        for name, kept in self.kept.items():
            self.kept[name] = min(kept, max(0, self.held(name) + self.pending.get(name, 0)))


class World:
    """A namespace."""

    def __init__(self) -> None:
        self.configs: dict[tuple[str, str], tuple[Limit, ...]] = {}
        self.entities: dict[str, tuple[str | None, bool]] = {}
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.usage: Counter[tuple[str, str, int, str]] = Counter()
        self.through_children: Counter[tuple[str, str, int, str]] = Counter()
        self.events: Counter[tuple[str, str, int]] = Counter()
        self.logs: dict[tuple[str, str, Key], Log] = {}

    # --- which limits

    def limits(self, entity: str, resource: str) -> tuple[tuple[Limit, ...], bool] | None:
        """The first level that has limits wins whole."""
        for level in (
            (entity, resource),
            (entity, DEFAULT),
            (NO_ENTITY, resource),
            (NO_ENTITY, ANYTHING),
        ):
            if level in self.configs:
                return self.configs[level], level[0] != NO_ENTITY
        return None

    def scope(
        self, entity: str, resource: str, override: tuple[Limit, ...] | None
    ) -> list[Share] | None:
        found = self.limits(entity, resource)
        if override is not None:
            configured = {limit.name: limit for limit in found[0]} if found else {}
            keys = tuple(
                limit.name if configured.get(limit.name, limit) == limit else (limit.name, limit)
                for limit in override
            )
            shares = [Share(entity, resource, override, keys, False, of_call=True)]
        elif found is not None:
            shares = [self._configured(entity, resource, *found)]
        else:
            return None
        parent, cascade = self.entities.get(entity, (None, False))
        if parent is None or not cascade:
            return shares
        above = self.limits(parent, resource)
        of_call = above is None
        if above is None and override is not None:
            above = (override, False)  # a parent without limits is charged under those of the call
        if above is not None:
            share = replace(self._configured(parent, resource, *above), of_call=of_call)
            shares.append(replace(share, of_child=frozenset(shares[0].names)))
        return shares

    def _configured(
        self, entity: str, resource: str, limits: tuple[Limit, ...], of_entity: bool
    ) -> Share:
        names = tuple(limit.name for limit in limits)
        return Share(entity, resource, limits, names, of_entity)

    # --- charging

    def view(self, share: Share, now_ms: int) -> Bucket:
        """A copy of the bucket, brought to the limits in force."""
        known = self.buckets.get((share.entity, share.resource))
        bucket = Bucket({}, now_ms // HOUR_MS) if known is None else known.copy()
        bucket.roll(now_ms)
        place = (share.entity, share.resource, bucket.hour)
        through = [
            name
            for (*at, name), amount in self.through_children.items()
            if tuple(at) == place and amount
        ]
        bucket.bring_to(share, now_ms, through)
        return bucket

    def plan(self, shares: list[Share], amounts: dict[str, int], now_ms: int) -> list[Part]:
        return [
            Part(
                share,
                self.view(share, now_ms),
                [amounts.get(name, 0) for name in share.names],
            )
            for share in shares
        ]

    def grant(self, parts: list[Part], now_ms: int, *, is_acquire: bool) -> None:
        for part in parts:
            part.bucket.may_be_forgotten = not part.share.of_entity
            part.bucket.paused_until_ms = 0
            self._replace((part.share.entity, part.share.resource), part.bucket)
            for key, _, amount in part.pots():
                self._shift(part.share, key, amount, now_ms, admitted=True)
            at = (part.share.entity, part.share.resource, part.bucket.hour)
            self.events[at] += is_acquire

    def refuse(self, part: Part, stored: Collection[Limit], now_ms: int) -> None:
        """Nothing is taken, but other limits apply from now on, or waiting would not help.

        Limits that are full may be stored with that or not: it makes no difference.
        """
        place = (part.share.entity, part.share.resource)
        known = self.buckets.get(place)
        if known is None:
            return
        if Counter(stored) == Counter(pot.limit for pot in part.bucket.pots.values()):
            self._replace(place, part.bucket)
        else:
            known.roll(now_ms)
            known.pots.update({key: pot for key, pot, _ in part.pots() if key in known.pots})
        for key, pot in self.buckets[place].pots.items():
            self._log(*place, key, pot, now_ms)

    def _replace(self, place: tuple[str, str], bucket: Bucket) -> None:
        """Store a bucket; a limit that it dropped was full, and begins full if it comes back."""
        self.buckets[place] = bucket
        for (*at, key), log in self.logs.items():
            if tuple(at) == place and key not in bucket.pots:
                log.dormant = True

    def settle(self, share: Share, amounts: dict[str, int], now_ms: int) -> None:
        """Debts (positive) and credits (negative) by name, to one bucket."""
        owed = {key: amounts.get(limit.name, 0) for key, limit in share.places}
        owed = {key: amount for key, amount in owed.items() if amount}
        if not owed:
            return
        bucket = self.buckets.get((share.entity, share.resource))
        if bucket is None and max(owed.values()) < 0:
            for key, amount in owed.items():  # it is full; that much was not used after all
                self._use(share, now_ms // HOUR_MS, key, amount)
            return
        if bucket is None:
            bucket = self.view(share, now_ms)
            self.buckets[share.entity, share.resource] = bucket
        bucket.roll(now_ms)
        bucket.may_be_forgotten = not share.of_entity
        limits = dict(share.places)
        for key, amount in owed.items():
            if key not in bucket.pots and amount < 0:  # it is full, as above
                self._use(share, now_ms // HOUR_MS, key, amount)
                continue
            if key not in bucket.pots:
                bucket.add(key, limits[key], now_ms)
            self._shift(share, key, amount, now_ms, admitted=False)

    def _use(self, share: Share, hour: int, key: Key, amount: int) -> None:
        at = (share.entity, share.resource, hour, name_of(key))
        self.usage[at] += amount
        if name_of(key) in share.of_child:
            self.through_children[at] += amount

    def _shift(self, share: Share, key: Key, amount: int, now_ms: int, *, admitted: bool) -> None:
        bucket = self.buckets[share.entity, share.resource]
        pot = bucket.pots[key]
        pot.set(pot.level_at(now_ms) - amount, now_ms)
        pot.net += amount
        self._use(share, bucket.hour, key, amount)
        self._note(
            share.entity,
            share.resource,
            key,
            now_ms,
            taken=max(0, amount),
            given=max(0, -amount),
            admitted=admitted,
        )

    def _note(self, entity: str, resource: str, key: Key, now_ms: int, **what: int | bool) -> None:
        pot = self.buckets[entity, resource].pots[key]
        self._log(entity, resource, key, pot, now_ms).note(**what)

    def _log(self, entity: str, resource: str, key: Key, pot: Pot, now_ms: int) -> Log:
        """The log of a limit, at its present rate from now on."""
        log = self.logs.get((entity, resource, key))
        if log is not None and log.dormant and log.limit != pot.limit:
            log.check()
            log = None
        if log is None:
            log = self.logs[entity, resource, key] = Log(pot.limit, now_ms)
        log.dormant = False
        log.follow(pot.limit, now_ms)
        return log

    # --- leases

    def release(self, lease: Lease, amounts: dict[str, int], now_ms: int) -> None:
        """What was taken last goes back first."""
        cost = lease.consumed()
        self._write(lease, {name: -amount for name, amount in amounts.items()}, now_ms)
        for name, amount in amounts.items():
            if amount > cost.get(name, 0):  # a part of it was to return at the end
                lease.pending[name] += amount - cost[name]
        lease.lower_kept()

    def settle_now(self, lease: Lease, amounts: dict[str, int], now_ms: int) -> None:
        """Make what was written equal to what it costs."""
        changes = {name: amount - lease.held(name) for name, amount in amounts.items()}
        self._write(lease, changes, now_ms)
        for name in amounts:
            lease.pending[name] = 0

    def end_lease(self, lease: Lease, now_ms: int, *, failed: bool) -> None:
        """Adjustments are written; after a failure all goes back but what was settled or kept."""
        if not failed or lease.keeps:
            self._write(lease, lease.pending, now_ms)
            return
        costs = {name: 0 for hold in lease.holds for name in hold.amounts} | lease.kept
        changes = {name: cost - lease.held(name) for name, cost in costs.items()}
        self._write(lease, changes, now_ms)

    def _write(self, lease: Lease, changes: dict[str, int], now_ms: int) -> None:
        """Credits go to the newest charge that holds some; all else to the first with the limit.

        What concerns one charge is one write: a debt brings back a bucket that was deleted, and the
        credit beside it is counted there.
        """
        left, parts = dict(changes), []
        for hold in reversed(lease.holds):
            back = {
                name: min(-left.get(name, 0), held)
                for name, held in hold.amounts.items()
                if left.get(name, 0) < 0 < held
            }
            for name, amount in back.items():
                left[name] += amount
            parts.append({name: -amount for name, amount in back.items()})
        for hold, part in zip(lease.holds, reversed(parts), strict=True):
            for name in [name for name in left if name in hold.names]:
                part[name] = part.get(name, 0) + left.pop(name)
        for hold, part in zip(reversed(lease.holds), parts, strict=True):
            self._change_hold(hold, part, now_ms)

    def _change_hold(self, hold: Hold, amounts: dict[str, int], now_ms: int) -> None:
        for name, amount in amounts.items():
            hold.amounts[name] = hold.amounts.get(name, 0) + amount
        self._settle_hold(hold, amounts, now_ms)

    def _settle_hold(self, hold: Hold, amounts: dict[str, int], now_ms: int) -> None:
        for share in hold.shares:
            self.settle(share, amounts, now_ms)

    # --- mending and forgetting

    def reset(self, entity: str, resource: str, now_ms: int) -> None:
        bucket = self.buckets.get((entity, resource))
        if bucket is not None:
            bucket.roll(now_ms)
            for key, pot in bucket.pots.items():
                full = Fraction(pot.limit.capacity)
                bucket.pots[key] = replace(pot, level=full, at_ms=now_ms, rebased=0)
                self._note(entity, resource, key, now_ms, starts_anew=True)

    def top_up(self, entity: str, resource: str, amounts: dict[str, int], now_ms: int) -> bool:
        """False if a limit is not known there."""
        bucket = self.buckets.get((entity, resource))
        if bucket is None:
            return True
        if not amounts.keys() <= bucket.pots.keys():
            return False
        bucket.roll(now_ms)
        for name, amount in amounts.items():
            pot = bucket.pots[name]
            pot.set(pot.level_at(now_ms) + amount, now_ms)
            self._note(entity, resource, name, now_ms, given=amount)
        return True

    def pause(self, entity: str, resource: str, seconds: int, now_ms: int) -> None:
        """Nothing is granted until then; the latest end holds, and 0 seconds lift it."""
        bucket = self.buckets.get((entity, resource))
        if bucket is None and seconds:
            found = self.limits(entity, resource)
            bucket = Bucket({}, now_ms // HOUR_MS, may_be_forgotten=True)
            if found is not None:
                bucket = self.view(self._configured(entity, resource, *found), now_ms)
                bucket.may_be_forgotten = not found[1]
            self.buckets[entity, resource] = bucket
            for key, pot in bucket.pots.items():
                self._log(entity, resource, key, pot, now_ms)
        if bucket is not None:
            bucket.roll(now_ms)
            until_ms = now_ms + 1000 * seconds if seconds else 0
            bucket.paused_until_ms = max(bucket.paused_until_ms, until_ms) if seconds else 0

    def delete_entity(self, entity: str) -> None:
        self.entities.pop(entity, None)
        self.configs = {at: each for at, each in self.configs.items() if at[0] != entity}
        self.buckets = {at: each for at, each in self.buckets.items() if at[0] != entity}
        for place in [place for place in self.logs if place[0] == entity]:
            self.logs.pop(place).check()

    def forgotten(self, entity: str, resource: str, now_ms: int) -> None:
        """The package has deleted the bucket, which is right only if that makes no difference."""
        bucket = self.buckets.pop((entity, resource))
        assert bucket.may_be_forgotten
        assert bucket.paused_until_ms <= now_ms
        for key, pot in bucket.pots.items():
            assert pot.most(now_ms) > pot.limit.capacity, (entity, resource, key, pot)
            self._log(entity, resource, key, pot, now_ms).dormant = True


def is_plain(key: Key) -> bool:
    return name_of(key) == key


def name_of(key: Key) -> str:
    return key if isinstance(key, str) else key[0]
