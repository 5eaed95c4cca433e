"""One conditional write to a bucket; if no answer comes, its outcome is looked up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter.admission.request import Fate
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable, ZAELimiterError
from zae_limiter.items.buckets.writes import PlannedWrite
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.bucket import WRITE_ID, shows_write
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.store_errors import ConditionFailed, NoAnswer, NotSent, ServerFault

# A repeated write may meet other connections that the server has closed, but hardly more of them.
MAX_CLOSED_CONNECTIONS = 4
FIRST_SHARE = 0.7  # of the remaining time; the rest is for looking up an unknown outcome
# If the other side has closed the connection, a request is carried out within a moment, if at all.
# After so many request timeouts without a trace of it, it was lost.
LATE_TIMEOUTS = 5
# A request that this side gave up may still wait in the network, until AWS refuses its signature.
SIGNED_S = 900.0


class ConditionalWriter:
    """Sends a write once, and again only where the repetition cannot apply it twice."""

    def __init__(self, store: ItemStore) -> None:
        self._store = store
        self._counters = store.counters

    async def write(
        self,
        write: PlannedWrite,
        deadline: Deadline,
        on_throttled: Callable[[], None] | None = None,
    ) -> Item:
        """Return the item after the write; raise ConditionFailed if the write was refused.

        ``on_throttled`` is called each time DynamoDB throttles the write. NotSent and Throttled say
        that the write was not made, ServerFault and NoAnswer that it may have been made, or that it
        may still arrive.
        """
        send_until = Deadline(deadline.left() * FIRST_SHARE)
        try:
            return await self._store.update(write.request, send_until, throttled=on_throttled)
        except ConditionFailed as refused:
            if refused.item is not None and shows_write(refused.item, write.write_id):
                return refused.item  # it was delivered twice, and made by the first delivery
            raise
        except ServerFault as fault:
            return await self._retry_guarded(write, fault, deadline)
        except NoAnswer as silence:
            if silence.closed_idle:
                return await self._repeat_after_closed_idle(write, silence, deadline)
            return await self._look_for(write, silence, deadline)

    async def _retry_guarded(
        self, write: PlannedWrite, fault: ServerFault, deadline: Deadline
    ) -> Item:
        """Repeat the write under its guard: after an answer no earlier copy is in flight.

        So this repeats writes that give tokens, too.
        """
        if write.guarded_retry is None:
            return await self._look_for(write, fault, deadline)
        return await self._repeat(write, write.guarded_retry, fault, deadline)

    async def _repeat_after_closed_idle(
        self, write: PlannedWrite, silence: NoAnswer, deadline: Deadline
    ) -> Item:
        """Repeat a write that was sent just when the server closed the idle connection.

        Read once. Only while the item's write id is still the known one, the write is repeated
        under that guard. If the original arrives after all, and after more than three other
        writes, the caller is charged twice, but admitted once. A write that gives tokens is only
        looked for.
        """
        if write.guarded_retry is None or write.gives:
            return await self._look_for(write, silence, deadline)
        item = await self._read_in_doubt(write, silence, deadline)
        if item is not None and shows_write(item, write.write_id):
            return item
        if _write_id(item) != write.previous_write_id:
            raise silence
        self._counters.add(repeated_writes=1)
        return await self._repeat(write, write.guarded_retry, silence, deadline)

    async def _repeat(
        self,
        write: PlannedWrite,
        guarded: Callable[[], ItemUpdate],
        doubt: ServerFault | NoAnswer,
        deadline: Deadline,
    ) -> Item:
        """Send the guarded write; again if its connection, too, was closed while idle.

        However often it is sent, it is applied once: applying it changes the write id.
        """
        for _ in range(MAX_CLOSED_CONNECTIONS):
            again = guarded()  # a bucket is created under another origin
            try:
                return await self._store.update(again, deadline)
            except ConditionFailed as failed:
                if failed.item is not None and shows_write(failed.item, write.write_id):
                    return failed.item  # an earlier one did it
                if _write_id(failed.item) == write.previous_write_id:
                    raise  # no write came: its own condition failed
                return _item_after(write, failed.item, doubt)
            except NoAnswer as silence:
                doubt = silence  # from now on a copy may be in flight
                if not silence.closed_idle or write.gives:
                    raise
            except ServerFault:
                return await self._look_for(write, doubt, deadline)
            except InfrastructureError as error:
                raise doubt from error
        raise doubt

    async def _look_for(
        self, write: PlannedWrite, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item:
        """Read once, and return the item if it shows that the write was made."""
        item = await self._read_in_doubt(write, doubt, deadline)
        return _item_after(write, item, doubt)

    async def _read_in_doubt(
        self, write: PlannedWrite, doubt: RateLimiterUnavailable, deadline: Deadline
    ) -> Item | None:
        try:
            return await self._store.get(write.request.key, deadline)
        except InfrastructureError:  # also where reading is not permitted
            raise doubt from None


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A write of unknown outcome, and what shows whether it was made.

    ``arrives_until_s`` is the moment, on the monotonic clock, up to which a copy of the write may
    still arrive; None if no copy is in flight.
    """

    store: ItemStore
    key: Key
    write_id: str
    previous_write_id: str | None
    arrives_until_s: float | None

    @classmethod
    def of(cls, store: ItemStore, write: PlannedWrite, error: ZAELimiterError) -> LostWrite:
        """Return the lost write that has ended with this error."""
        until_s = None
        if isinstance(error, NoAnswer):
            late_s = LATE_TIMEOUTS * store.request_timeout if error.closed else SIGNED_S
            until_s = time.monotonic() + late_s
        return cls(store, write.request.key, write.write_id, write.previous_write_id, until_s)

    async def look_up(self) -> Fate:
        """Read the item: the write was made if its id is there.

        It was not made if the id of the write before it is still there, since an item shows the ids
        of its last writes without a gap. Otherwise too many writes have followed to tell.
        """
        item = await self.store.get(self.key)
        if shows_write(item, self.write_id):
            return Fate.MADE
        if self.previous_write_id is None or not shows_write(item, self.previous_write_id):
            return Fate.NEVER_KNOWN
        if self.arrives_until_s is not None and time.monotonic() < self.arrives_until_s:
            return Fate.NOT_KNOWN_YET
        return Fate.NOT_MADE


def _item_after(write: PlannedWrite, item: Item | None, doubt: RateLimiterUnavailable) -> Item:
    """Return the item if it shows that a write was made; raise the doubt otherwise.

    The write may still arrive, unless the server has answered with a fault: then it was not made if
    the id of the write before it is still there.
    """
    if item is not None and shows_write(item, write.write_id):
        return item
    before = write.previous_write_id
    if isinstance(doubt, ServerFault) and before is not None and shows_write(item, before):
        raise NotSent(f"{doubt}; the write was not made", cause=doubt) from doubt
    raise doubt


def _write_id(item: Item | None) -> str | None:
    """Return the id of an item's last write; None if the item has none."""
    write_id = None if item is None else item.get(WRITE_ID)
    return write_id.get("S") if isinstance(write_id, dict) else None
