"""The keeper of tallies, which stores them in time if no other write has stored them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from zae_limiter.admission.request import AcquireEnd
from zae_limiter.admission.tally import tallies_of
from zae_limiter.runtime.alarm import AAlarm
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.tallies import BucketKey, NotedTallies

LEAST_PAUSE_S = 0.1  # the least time between two attempts


class TallyKeeper:
    """Notes tallies, and stores them after 30 s, in the event loop or thread that noted them.

    ``store`` writes the tallies of the given buckets, as far as possible. If the event loop that
    noted a tally has ended, the next loop stores it, or the engine does when it is closed.
    """

    def __init__(
        self, noted: NotedTallies, store: Callable[[list[BucketKey]], Awaitable[None]]
    ) -> None:
        self._noted = noted
        self._store = store
        self._alarms: dict[object, AAlarm] = {}
        self._is_closed = False
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the alarms of the parent, which stores its own counts."""
        self._alarms = {}

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        """Note the end of an acquire, for each bucket that counts it."""
        in_force = dict(ended.buckets)
        for entity_id, tally in tallies_of(ended, ended.clock()).items():
            if entity_id in in_force:
                bucket = (namespace_id, entity_id, ended.resource)
                self._noted.note(bucket, tally, in_force[entity_id], ended.clock)
        self._arm()

    def close(self) -> None:
        """Stop all alarms for good."""
        with self._lock:
            self._is_closed = True
            for alarm in self._alarms.values():
                alarm.stop()
            self._alarms = {}

    def _arm(self, least_s: float = 0.0) -> None:
        """Set the alarm of this event loop to the time at which the next tallies are due."""
        seconds = self._noted.next_due_s()
        if seconds is None:
            return
        owner = AAlarm.owner()
        with self._lock:
            if self._is_closed:
                return
            alarm = self._alarms.get(owner)
            if alarm is None:
                alarm = self._new_alarm(owner)
            alarm.set(max(seconds, least_s))

    def _new_alarm(self, owner: object) -> AAlarm:
        self._alarms = {each: alarm for each, alarm in self._alarms.items() if not alarm.is_dead}
        alarm = self._alarms[owner] = AAlarm(self._ring, "zael-counts")
        return alarm

    async def _ring(self) -> None:
        """Store the due tallies, and set the alarm for the others. Errors are only logged."""
        try:
            due = self._noted.due()
            if due:
                await self._store(due)
        except Exception:  # noqa: BLE001 - whatever it is, the next ring tries again
            # Not before it is needed: `import zae_limiter` does without logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).warning(
                "could not store the counts of rejected, shadowed and waiting acquires",
                exc_info=True,
            )
        finally:
            self._arm(LEAST_PAUSE_S)
