"""The amounts of quotas that leases of this process hold. They are renewed until the block ends."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zae_limiter.admission.quotas import NEVER_EXPIRES, QuotaHold, expiry_s, quota_terms
from zae_limiter.admission.request import (
    Charge,
    Grant,
    Renewal,
    RenewalFailure,
    RenewalOutcome,
    Settlement,
)
from zae_limiter.admission.windows import end_ms
from zae_limiter.clock import Clock
from zae_limiter.concurrency.alarm import AAlarm
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.concurrency.waiter import AWaiter

if TYPE_CHECKING:
    from zae_limiter._async.ports import BucketStore
    from zae_limiter.quiet_logging import QuietLogger

RETRY_MS = 250  # the time between renewals that fail
RENEWAL_WAIT_S = 10.0  # a block that ends waits this long for a renewal that is under way

_Bucket = tuple[str, str]  # entity and resource
_Holds = tuple[tuple[QuotaHold, ...], ...]


class HeldQuotas:
    """The holds of one grant, from the acquire to the end of its block.

    Only the lease refers to this object strongly. If a lease is dropped without an end, because its
    block was abandoned, its holds are not renewed and expire. ``renew_at_ms`` is None if they need
    no renewal before their windows end.
    """

    __slots__ = ("__weakref__", "_pid", "grant", "holds", "renew_at_ms", "renewing")

    def __init__(self, grant: Grant, now_ms: int) -> None:
        self.grant = grant
        self.holds = [list(holds) for holds in grant.quota_holds]
        self.renewing: AWaiter | None = None
        self._pid = os.getpid()
        self.renew_at_ms = self._next_renewal_ms(now_ms)

    @property
    def is_own(self) -> bool:
        """Whether this process has made the acquire; after a fork the parent renews."""
        return self._pid == os.getpid()

    def current(self) -> _Holds:
        """Return the holds of each charge."""
        return tuple([tuple(holds) for holds in self.holds])

    def change(self, settlements: Iterable[Settlement]) -> None:
        """Note that settlements which keep the holds change their amounts."""
        changes = {
            id(each.hold): each.change for settlement in settlements for each in settlement.quotas
        }
        self.holds = [
            [hold._replace(units=hold.units + changes.get(id(hold), 0)) for hold in holds]
            for holds in self.holds
        ]

    def restore(self, before: _Holds) -> None:
        """Note that a change was certainly not written."""
        self.holds = [list(holds) for holds in before]

    def renewed(
        self, bucket: _Bucket, outcome: RenewalOutcome, order: list[QuotaHold], now_ms: int
    ) -> None:
        """Note the outcome of a renewal of one of its buckets.

        A renewal with an unknown outcome counts as made: if it was not, the settlement finds out.
        """
        if outcome is RenewalFailure.NOT_MADE:
            self.renew_at_ms = now_ms + RETRY_MS
            return
        moments = {}
        if not isinstance(outcome, RenewalFailure):
            moments = dict(zip(order, outcome, strict=True))
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            if _bucket_of(charge) != bucket:
                continue
            for at, hold in enumerate(holds):
                if not hold.units or hold.expires_s == NEVER_EXPIRES:
                    continue
                terms, _ = quota_terms(charge.in_force.rate_of(hold.key))
                made_s = moments.get(_one(hold)) if moments else expiry_s(terms.hold_ttl_s, now_ms)
                if made_s is not None:
                    holds[at] = hold._replace(expires_s=made_s)
        self.renew_at_ms = self._next_renewal_ms(now_ms)

    def due(self) -> Iterable[tuple[Charge, list[QuotaHold]]]:
        """Return the holds that expire before their window ends, with their charge."""
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            renewable = [hold for hold in holds if _is_renewable(charge, hold)]
            if renewable:
                yield charge, renewable

    def _next_renewal_ms(self, now_ms: int) -> int | None:
        """Return the moment of the next renewal: half of the shortest TTL from now."""
        moments = []
        for charge, holds in self.due():
            for hold in holds:
                terms, window = quota_terms(charge.in_force.rate_of(hold.key))
                assert terms.hold_ttl_s is not None, "it expires"
                if now_ms < min(hold.expires_s * 1000, end_ms(window, hold.window)):
                    moments.append(now_ms + terms.hold_ttl_s // 2 * 1000)
        return min(moments, default=None)


class _HoldGroup:
    """The holds that one event loop renews; in the sync tree, all holds of the process."""

    __slots__ = ("alarm", "held", "is_renewing")

    def __init__(self, alarm: AAlarm) -> None:
        self.alarm = alarm
        self.held: dict[int, weakref.ref[HeldQuotas]] = {}
        self.is_renewing = False

    def alive(self) -> list[HeldQuotas]:
        held = [reference() for reference in list(self.held.values())]
        return [each for each in held if each is not None and each.is_own]


class HoldKeeper:
    """Renews the holds of all leases of one namespace, in one write per bucket."""

    def __init__(self, buckets: BucketStore, namespace_id: str, clock: Clock) -> None:
        self._buckets = buckets
        self._namespace_id = namespace_id
        self._clock = clock
        self._groups: dict[object, _HoldGroup] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Renew nothing in the child, since the holds belong to the parent."""
        self._groups = {}

    def keep(self, grant: Grant) -> HeldQuotas:
        """Keep the holds of a grant until ``end`` is called."""
        held = HeldQuotas(grant, self._clock())
        self.go_on(held)
        return held

    def go_on(self, held: HeldQuotas) -> None:
        """Renew holds, from now on or again."""
        if held.renew_at_ms is None:
            return
        with self._lock:
            group = self._group()
            group.held[id(held)] = weakref.ref(held, _forget(group.held, id(held)))
            group.alarm.set((held.renew_at_ms - self._clock()) / 1000)

    async def end(self, held: HeldQuotas) -> _Holds:
        """Stop renewing holds, and return them. It may be called again."""
        if held.renew_at_ms is not None:
            with self._lock:
                for group in self._groups.values():
                    group.held.pop(id(held), None)
                renewing = held.renewing
            if renewing is not None:
                try:
                    await renewing.wait(RENEWAL_WAIT_S)
                except TimeoutError:
                    held.renewed(_ANY, RenewalFailure.UNKNOWN, [], self._clock())
        return held.current()

    def kept(self) -> int:
        """Return the number of leases whose holds are renewed."""
        with self._lock:
            return sum(len(group.alive()) for group in self._groups.values())

    def close(self) -> None:
        """Stop renewing everything."""
        with self._lock:
            for group in self._groups.values():
                group.alarm.stop()
            self._groups = {}

    def _group(self) -> _HoldGroup:
        owner = AAlarm.owner()
        group = self._groups.get(owner)
        if group is None:
            self._groups = {
                owner: group for owner, group in self._groups.items() if not group.alarm.is_dead
            }

            async def ring() -> None:
                await self._renew(owner)

            group = self._groups[owner] = _HoldGroup(AAlarm(ring))
        return group

    async def _renew(self, owner: object) -> None:
        """Renew the due holds, and set the alarm again after any error."""
        with self._lock:
            group = self._groups.get(owner)
            if group is None or group.is_renewing:
                return
            group.is_renewing = True
        due: list[HeldQuotas] = []
        try:
            with self._lock:
                now_ms = self._clock()
                alive = group.alive()
                if any(each.renew_at_ms and each.renew_at_ms <= now_ms for each in alive):
                    due = alive  # all calls together: one write renews them
                for each in due:
                    each.renewing = AWaiter()
            if due:
                await self._write(due)
        except Exception:  # noqa: BLE001 - after any error, the next ring tries again
            _logger().exception("could not renew holds; the next attempt follows soon")
        finally:
            with self._lock:
                for each in due:
                    waiter, each.renewing = each.renewing, None
                    if waiter is not None:
                        waiter.wake()
                group.is_renewing = False
                self._set_alarm(group)

    async def _write(self, due: list[HeldQuotas]) -> None:
        """Renew the holds of all leases, added up by bucket and expiry."""
        sums: dict[_Bucket, dict[QuotaHold, int]] = {}
        charges: dict[_Bucket, Charge] = {}
        for each in due:
            for charge, holds in each.due():
                bucket = _bucket_of(charge)
                charges[bucket] = charge
                of_bucket = sums.setdefault(bucket, {})
                for hold in holds:
                    of_bucket[_one(hold)] = of_bucket.get(_one(hold), 0) + hold.units
        renewals = tuple(
            [
                Renewal(
                    *bucket,
                    charges[bucket].in_force,
                    quota_holds=tuple([hold._replace(units=units) for hold, units in each.items()]),
                )
                for bucket, each in sums.items()
            ]
        )
        outcomes: list[RenewalOutcome] = [RenewalFailure.UNKNOWN] * len(renewals)
        began_ms = self._clock()
        try:
            outcomes = await self._buckets.renew(self._namespace_id, renewals, self._clock)
        except Exception:  # noqa: BLE001 - the holds expire by themselves
            _logger().exception("could not renew the holds of %s", list(sums))
        for (bucket, order), outcome in zip(sums.items(), outcomes, strict=True):
            for each in due:
                each.renewed(bucket, outcome, list(order), began_ms)

    def _set_alarm(self, group: _HoldGroup) -> None:
        """Set the alarm to the moment at which the first hold is due; soon if the clock raises."""
        moments = [each.renew_at_ms for each in group.alive() if each.renew_at_ms is not None]
        if not moments:
            return
        try:
            wait_ms = min(moments) - self._clock()
        except Exception:  # noqa: BLE001 - a clock of the user may raise anything
            wait_ms = RETRY_MS
        group.alarm.set(max(wait_ms, RETRY_MS) / 1000)


_ANY: _Bucket = ("", "")


def _forget(held: dict[int, weakref.ref[HeldQuotas]], key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        held.pop(key, None)

    return forget


def _one(hold: QuotaHold) -> QuotaHold:
    """Return the same hold with one unit, as a key for all holds with the same expiry."""
    return hold._replace(units=1)


def _bucket_of(charge: Charge) -> _Bucket:
    return charge.entity_id, charge.resource


def _is_renewable(charge: Charge, hold: QuotaHold) -> bool:
    """Tell whether a hold expires before its window ends."""
    if not hold.units or hold.expires_s == NEVER_EXPIRES:
        return False
    _, window = quota_terms(charge.in_force.rate_of(hold.key))
    return hold.expires_s * 1000 < end_ms(window, hold.window)


def _logger() -> QuietLogger:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)
