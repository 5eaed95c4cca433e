"""The slots that leases of this process hold. They are renewed in time, or reported as lost."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zae_limiter.admission.request import Charge, Grant, Renewal, RenewalFailure, RenewalOutcome
from zae_limiter.admission.slots import MARGIN_MS, SlotHold, is_lost, renewal_ms
from zae_limiter.clock import Clock
from zae_limiter.concurrency.alarm import AAlarm
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.concurrency.waiter import AWaiter

if TYPE_CHECKING:
    from zae_limiter._async.ports import BucketStore
    from zae_limiter.quiet_logging import QuietLogger

RETRY_MS = 250  # the time between renewals that fail
RENEWAL_WAIT_S = 10.0  # a block that ends waits this long for its renewal; then the slots expire

_Bucket = tuple[str, str]  # entity and resource


class HeldSlots:
    """The slots of one grant, from the acquire to the end of its block.

    Only the lease refers to this object strongly. If a lease is dropped without an end, because its
    block was abandoned, its slots are not renewed and expire.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_pid",
        "grant",
        "holds",
        "is_unsure",
        "on_lost",
        "renew_at_ms",
        "renewing",
        "was_lost",
    )

    def __init__(self, grant: Grant, clock: Clock) -> None:
        self.grant = grant
        self.holds = [list(holds) for holds in grant.holds]
        self.is_unsure = False  # if the outcome of a renewal is unknown, it must not be repeated
        self.was_lost = False
        self.on_lost: Callable[[], None] | None = None
        self.renewing: AWaiter | None = None
        self._clock = clock
        self._pid = os.getpid()
        self.renew_at_ms = renewal_ms(self.expires_ms, clock())

    @property
    def expires_ms(self) -> int:
        """The moment at which the first of its slots expires."""
        return min(hold.expires_ms for holds in self.holds for hold in holds)

    @property
    def is_lost(self) -> bool:
        """Whether another caller may hold the slots by now."""
        return self.was_lost or self._pid != os.getpid() or is_lost(self.expires_ms, self._clock())

    def released(self) -> tuple[tuple[SlotHold, ...], ...]:
        """Return the slots that the end of the block gives back; none if they may have expired."""
        if self.is_unsure or self.is_lost:
            return ()
        return tuple([tuple(holds) for holds in self.holds])

    def renewed(self, bucket: _Bucket, outcome: RenewalOutcome, order: list[SlotHold]) -> None:
        """Note the outcome of a renewal of one of its buckets."""
        if outcome is RenewalFailure.UNKNOWN:
            self.is_unsure = True
        elif not isinstance(outcome, RenewalFailure):
            moments = dict(zip(order, outcome, strict=True))
            for charge, holds in zip(self.grant.charges, self.holds, strict=True):
                if _bucket_of(charge) != bucket:
                    continue
                for at, hold in enumerate(holds):
                    moment = moments[_one(hold)]
                    if moment is None:
                        self.was_lost = True
                    else:
                        holds[at] = hold._replace(expires_ms=moment)


class _Group:
    """The slots that one event loop renews; in the sync tree, all slots of the process."""

    __slots__ = ("alarm", "held", "is_renewing")

    def __init__(self, alarm: AAlarm) -> None:
        self.alarm = alarm
        self.held: dict[int, weakref.ref[HeldSlots]] = {}
        self.is_renewing = False

    def alive(self) -> list[HeldSlots]:
        held = [reference() for reference in list(self.held.values())]
        return [each for each in held if each is not None]


class SlotKeeper:
    """Renews the slots of all leases of one namespace, in one write per bucket."""

    def __init__(self, buckets: BucketStore, namespace_id: str, clock: Clock) -> None:
        self._buckets = buckets
        self._namespace_id = namespace_id
        self._clock = clock
        self._groups: dict[object, _Group] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Renew nothing in the child, since the slots belong to the parent."""
        self._groups = {}

    def keep(self, grant: Grant) -> HeldSlots:
        """Keep the slots of a grant until ``end`` is called or they are lost."""
        held = HeldSlots(grant, self._clock)
        with self._lock:
            group = self._group()
            group.held[id(held)] = weakref.ref(held, _forget(group.held, id(held)))
            group.alarm.set((held.renew_at_ms - self._clock()) / 1000)
        return held

    def kept(self) -> list[int]:
        """Return the number of leases that each event loop renews; one number in the sync tree."""
        with self._lock:
            return [len(group.alive()) for group in self._groups.values()]

    async def end(self, held: HeldSlots) -> tuple[tuple[SlotHold, ...], ...]:
        """Stop renewing slots, and return those to give back. It may be called again."""
        with self._lock:
            for group in self._groups.values():
                group.held.pop(id(held), None)
            renewing = held.renewing
        if renewing is not None:
            try:
                await renewing.wait(RENEWAL_WAIT_S)
            except TimeoutError:
                held.is_unsure = True
        return held.released()

    def close(self) -> None:
        """Stop renewing everything."""
        with self._lock:
            for group in self._groups.values():
                group.alarm.stop()
            self._groups = {}

    def _group(self) -> _Group:
        owner = AAlarm.owner()
        group = self._groups.get(owner)
        if group is None:
            self._groups = {
                owner: group for owner, group in self._groups.items() if not group.alarm.is_dead
            }

            async def ring() -> None:
                await self._renew(owner)

            group = self._groups[owner] = _Group(AAlarm(ring))
        return group

    async def _renew(self, owner: object) -> None:
        """Report lost slots, renew the due ones, and set the alarm again after any error.

        A clock of the user may raise. Then the alarm rings again soon.
        """
        with self._lock:
            group = self._groups.get(owner)
            if group is None or group.is_renewing:
                return
            group.is_renewing = True
        due: dict[_Bucket, list[HeldSlots]] = {}
        try:
            with self._lock:
                lost = self._take_lost(group)
                due = self._due(group.alive())
                for each in _all_held(due):
                    each.renewing = AWaiter()
            _report(lost)
            if due:
                await self._write(due)
            with self._lock:
                lost = self._take_lost(group)
            _report(lost)
        except Exception:  # noqa: BLE001 - after any error, the next ring tries again
            _logger().exception("could not renew slots; the next attempt follows soon")
        finally:
            with self._lock:
                for each in _all_held(due):
                    waiter, each.renewing = each.renewing, None
                    if waiter is not None:
                        waiter.wake()
                group.is_renewing = False
                self._set_alarm(group)

    def _take_lost(self, group: _Group) -> list[HeldSlots]:
        lost = [each for each in group.alive() if each.is_lost]
        for each in lost:
            each.was_lost = True
            group.held.pop(id(each), None)
        return lost

    def _due(self, alive: list[HeldSlots]) -> dict[_Bucket, list[HeldSlots]]:
        """Return the buckets with due slots, each with all leases that hold slots of it.

        So all leases of a bucket are renewed together from then on.
        """
        now_ms, by_bucket = self._clock(), dict[_Bucket, list[HeldSlots]]()
        for each in alive:
            if not each.is_unsure:
                for bucket in _buckets_of(each):
                    by_bucket.setdefault(bucket, []).append(each)
        return {
            bucket: held
            for bucket, held in by_bucket.items()
            if any(each.renew_at_ms <= now_ms for each in held)
        }

    async def _write(self, due: dict[_Bucket, list[HeldSlots]]) -> None:
        renewals, orders = [], []
        for bucket, held in due.items():
            renewal, order = _renewal(bucket, held)
            renewals.append(renewal)
            orders.append(order)
        began_ms = self._clock()

        def clock() -> int:
            """Return the time at the beginning if the clock raises, so that the write is made."""
            try:
                return self._clock()
            except Exception:  # noqa: BLE001 - a clock of the user may raise anything
                return began_ms

        outcomes: list[RenewalOutcome] = [RenewalFailure.UNKNOWN] * len(renewals)
        try:
            outcomes = await self._buckets.renew(self._namespace_id, tuple(renewals), clock)
        except Exception:  # noqa: BLE001 - after any error, other buckets are still renewed
            buckets = [(each.entity_id, each.resource) for each in renewals]
            _logger().exception("could not renew the slots of %s", buckets)
        now_ms = clock()
        for (bucket, held), outcome, order in zip(due.items(), outcomes, orders, strict=True):
            for each in held:
                each.renewed(bucket, outcome, order)
                at_ms = renewal_ms(each.expires_ms, now_ms)
                each.renew_at_ms = max(at_ms, now_ms + RETRY_MS)

    def _set_alarm(self, group: _Group) -> None:
        """Set the alarm to the moment at which slots are due or lost; soon if the clock raises."""
        moments = [
            each.expires_ms - MARGIN_MS if each.is_unsure else each.renew_at_ms
            for each in group.alive()
        ]
        if not moments:
            return
        try:
            wait_ms = min(moments) - self._clock()
        except Exception:  # noqa: BLE001 - a clock of the user may raise anything
            wait_ms = RETRY_MS
        group.alarm.set(wait_ms / 1000)


def _forget(held: dict[int, weakref.ref[HeldSlots]], key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        held.pop(key, None)

    return forget


def _one(hold: SlotHold) -> SlotHold:
    """Return the same hold with one slot, as a key for all holds with the same expiry."""
    return hold._replace(slots=1)


def _bucket_of(charge: Charge) -> _Bucket:
    return charge.entity_id, charge.resource


def _buckets_of(held: HeldSlots) -> set[_Bucket]:
    return {
        _bucket_of(charge)
        for charge, holds in zip(held.grant.charges, held.holds, strict=True)
        if holds
    }


def _all_held(due: dict[_Bucket, list[HeldSlots]]) -> Iterable[HeldSlots]:
    return {id(each): each for held in due.values() for each in held}.values()


def _renewal(bucket: _Bucket, held: list[HeldSlots]) -> tuple[Renewal, list[SlotHold]]:
    """Return the renewal of one bucket, with its slots added up by expiry, and their order."""
    sums: dict[SlotHold, int] = {}
    charges = []
    for each in held:
        for charge, holds in zip(each.grant.charges, each.holds, strict=True):
            if _bucket_of(charge) == bucket:
                charges.append(charge)
                for hold in holds:
                    sums[_one(hold)] = sums.get(_one(hold), 0) + hold.slots
    holds_of_all = tuple([hold._replace(slots=slots) for hold, slots in sums.items()])
    entity_id, resource = bucket
    return Renewal(entity_id, resource, charges[-1].in_force, holds_of_all), list(sums)


def _logger() -> QuietLogger:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)


def _report(lost: list[HeldSlots]) -> None:
    """Report lost leases in the log and by their callbacks."""
    for each in lost:
        charge = each.grant.charges[0]
        _logger().warning(
            "the lease of %r on %r is lost: its slots were not renewed in time, "
            "and another caller may take them",
            charge.entity_id,
            charge.resource,
        )
        if each.on_lost is not None:
            try:
                each.on_lost()
            except Exception:  # noqa: BLE001 - the other leases must still be renewed
                _logger().exception(
                    "the callback for the lost lease of %r on %r has failed",
                    charge.entity_id,
                    charge.resource,
                )
