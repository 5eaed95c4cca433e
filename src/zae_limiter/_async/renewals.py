"""Renewals of what the leases of this process hold: slots, and amounts of quotas.

A lease holds them from its acquire to the end of its block. Until then they are renewed in the
background, all leases of a bucket in one write.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zae_limiter.admission.request import Charge, Grant, Renewal, RenewalFailure, RenewalOutcome
from zae_limiter.clock import Clock
from zae_limiter.runtime.alarm import AAlarm
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.waiter import AWaiter

if TYPE_CHECKING:
    from zae_limiter._async.ports import BucketStore
    from zae_limiter.quiet_logging import QuietLogger

RETRY_MS = 250  # the time between renewals that fail
RENEWAL_WAIT_S = 10.0  # a block that ends waits this long for a renewal that is under way

Bucket = tuple[str, str]  # entity and resource


class Held:
    """The slots or amounts that one grant holds, from the acquire to the end of its block.

    Only the lease refers to this object strongly. If a lease is dropped without an end, because its
    block was abandoned, its holds are not renewed and expire. ``renew_at_ms`` is None if they need
    no renewal. ``renewing`` wakes the end of the block when the renewal under way has ended.
    """

    __slots__ = ("__weakref__", "_pid", "grant", "renew_at_ms", "renewing")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.renew_at_ms: int | None = None
        self.renewing: AWaiter | None = None
        self._pid = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this process has made the acquire; after a fork the parent renews."""
        return self._pid == os.getpid()

    @property
    def wake_at_ms(self) -> int | None:
        """The moment at which these holds need attention; None if they need none."""
        return self.renew_at_ms

    def buckets(self) -> set[Bucket]:
        """Return the buckets that have to be renewed."""
        raise NotImplementedError

    def add_to(self, sums: dict[Any, int], bucket: Bucket) -> None:
        """Add the holds of one bucket to the sums of all leases, by their expiry."""
        raise NotImplementedError

    def renewed(
        self,
        bucket: Bucket,
        outcome: RenewalOutcome,
        moments: Mapping[Any, int | None],
        began_ms: int,
        now_ms: int,
    ) -> None:
        """Note the outcome of a renewal of one bucket that began at a moment and has ended now.

        ``moments`` are the new expiries; empty if the renewal failed.
        """
        raise NotImplementedError

    def end_unsure(self) -> None:
        """Note that the block has ended during a renewal whose outcome it does not know."""


HeldT = TypeVar("HeldT", bound=Held)


class _Group(Generic[HeldT]):
    """The holds that one event loop renews; in the sync tree, all holds of the process."""

    __slots__ = ("alarm", "held", "is_renewing")

    def __init__(self, alarm: AAlarm) -> None:
        self.alarm = alarm
        self.held: dict[int, weakref.ref[HeldT]] = {}
        self.is_renewing = False

    def alive(self) -> list[HeldT]:
        held = [reference() for reference in list(self.held.values())]
        return [each for each in held if each is not None]


class RenewalKeeper(Generic[HeldT]):
    """Renews the holds of all leases of one namespace, in one write per bucket.

    ``things`` names the holds in the log.
    """

    things = "holds"

    def __init__(self, buckets: BucketStore, namespace_id: str, clock: Clock) -> None:
        self._buckets = buckets
        self._namespace_id = namespace_id
        self._clock = clock
        self._groups: dict[object, _Group[HeldT]] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Renew nothing in the child, since the holds belong to the parent."""
        self._groups = {}

    def kept(self) -> list[int]:
        """Return the number of leases that each event loop renews; one number in the sync tree."""
        with self._lock:
            return [len(group.alive()) for group in self._groups.values()]

    def close(self) -> None:
        """Stop renewing everything."""
        with self._lock:
            for group in self._groups.values():
                group.alarm.stop()
            self._groups = {}

    def _add(self, held: HeldT) -> None:
        """Renew holds from now on, until ``_remove``."""
        if held.renew_at_ms is None:
            return
        with self._lock:
            group = self._group()
            group.held[id(held)] = weakref.ref(held, _forget(group.held, id(held)))
            group.alarm.set((held.renew_at_ms - self._clock()) / 1000)

    async def _remove(self, held: HeldT) -> None:
        """Stop renewing holds, and wait for a renewal that is under way. It may be called again."""
        with self._lock:
            for group in self._groups.values():
                group.held.pop(id(held), None)
            renewing = held.renewing
        if renewing is not None:
            try:
                await renewing.wait(RENEWAL_WAIT_S)
            except TimeoutError:
                held.end_unsure()

    def _group(self) -> _Group[HeldT]:
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
        """Renew the due holds, and set the alarm again after any error.

        A clock of the user may raise. Then the alarm rings again soon.
        """
        with self._lock:
            group = self._groups.get(owner)
            if group is None or group.is_renewing:
                return
            group.is_renewing = True
        due: dict[Bucket, list[HeldT]] = {}
        try:
            self._report_lost(group)
            with self._lock:
                due = self._due(group.alive())
                for each in _all_of(due):
                    each.renewing = AWaiter()
            if due:
                await self._write(due)
                self._report_lost(group)
        except Exception:  # noqa: BLE001 - after any error, the next ring tries again
            quiet_log().exception("could not renew %s; the next attempt follows soon", self.things)
        finally:
            with self._lock:
                for each in _all_of(due):
                    waiter, each.renewing = each.renewing, None
                    if waiter is not None:
                        waiter.wake()
                group.is_renewing = False
                self._set_alarm(group)

    def _due(self, alive: list[HeldT]) -> dict[Bucket, list[HeldT]]:
        """Return the buckets with due holds, each with all leases that hold something of it.

        So all leases of a bucket are renewed together from then on.
        """
        now_ms, by_bucket = self._clock(), dict[Bucket, list[HeldT]]()
        for each in alive:
            if each.renew_at_ms is not None and each.is_own:
                for bucket in each.buckets():
                    by_bucket.setdefault(bucket, []).append(each)
        return {
            bucket: held
            for bucket, held in by_bucket.items()
            if any(each.renew_at_ms is not None and each.renew_at_ms <= now_ms for each in held)
        }

    def _renewal(self, charge: Charge, holds: Sequence[tuple[Any, int]]) -> Renewal:
        """Return the renewal of one bucket: each hold with the sum of all leases."""
        raise NotImplementedError

    def _take_lost(self, alive: list[HeldT]) -> list[HeldT]:
        """Return the leases whose holds other callers may have by now; they are not renewed."""
        return []

    def _report(self, lost: list[HeldT]) -> None:
        """Report lost leases."""

    def _report_lost(self, group: _Group[HeldT]) -> None:
        with self._lock:
            lost = self._take_lost(group.alive())
            for each in lost:
                group.held.pop(id(each), None)
        self._report(lost)

    async def _write(self, due: Mapping[Bucket, list[HeldT]]) -> None:
        """Renew the holds of all leases, added up by bucket and expiry."""
        sums: dict[Bucket, dict[Any, int]] = {}
        renewals = []
        for bucket, held in due.items():
            of_bucket = sums.setdefault(bucket, {})
            for each in held:
                each.add_to(of_bucket, bucket)
            charge = charge_of(held[-1].grant, bucket)
            renewals.append(self._renewal(charge, list(of_bucket.items())))
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
            quiet_log().exception("could not renew the %s of %s", self.things, list(due))
        now_ms = clock()
        for (bucket, held), outcome in zip(due.items(), outcomes, strict=True):
            moments: Mapping[Any, int | None] = {}
            if not isinstance(outcome, RenewalFailure):
                moments = dict(zip(sums[bucket], outcome, strict=True))
            for each in held:
                each.renewed(bucket, outcome, moments, began_ms, now_ms)

    def _set_alarm(self, group: _Group[HeldT]) -> None:
        """Set the alarm to the first moment that needs attention; soon if the clock raises."""
        moments = [each.wake_at_ms for each in group.alive() if each.wake_at_ms is not None]
        if not moments:
            return
        try:
            wait_ms = min(moments) - self._clock()
        except Exception:  # noqa: BLE001 - a clock of the user may raise anything
            wait_ms = RETRY_MS
        group.alarm.set(wait_ms / 1000)


def bucket_of(charge: Charge) -> Bucket:
    return charge.entity_id, charge.resource


def charge_of(grant: Grant, bucket: Bucket) -> Charge:
    """Return the charge of a grant on one of its buckets."""
    return next(charge for charge in grant.charges if bucket_of(charge) == bucket)


def quiet_log() -> QuietLogger:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)


def _forget(held: dict[int, weakref.ref[HeldT]], key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        held.pop(key, None)

    return forget


def _all_of(due: Mapping[Bucket, list[HeldT]]) -> Iterable[HeldT]:
    return {id(each): each for held in due.values() for each in held}.values()
