"""The managed state in the store: leased to one apply at a time, and written page by page."""

from __future__ import annotations

from contextlib import suppress

from zae_limiter._async.repository.context import Context
from zae_limiter.admission.configuration import Guard
from zae_limiter.clock import Deadline
from zae_limiter.clock.backoff import Backoff
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import new_event_id
from zae_limiter.runtime.calls import asleep
from zae_limiter_ops._async.provisioner.live import Document, StateReader
from zae_limiter_ops.manifest import state
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_ops.manifest.state import FIRST_PAGE, ApplyLease, Managed, page_key

FIRST_PAUSE_S = 0.1  # a small manifest is applied in less time
LONGEST_PAUSE_S = 2.0


class StateStore(StateReader):
    """Reads and writes the managed state, and takes and releases the lease of an apply.

    Only the holder of the lease writes. Each write is fenced: the write requires the revision of
    the first page that the holder wrote last. An apply that was stopped for longer than its lease
    therefore changes nothing after another apply has taken over.
    """

    def __init__(self, context: Context, principal: str | None, lease_ms: int) -> None:
        super().__init__(context)
        self._principal = principal
        self._lease_ms = lease_ms
        self._lease: ApplyLease | None = None

    # --- the lease

    async def wait_until_free(self, seconds: float) -> bool:
        """Wait while another apply holds the lease; return whether it was necessary to wait.

        Raises an ApplyConflict that names the other apply if it still holds the lease after
        ``seconds``. The lease of a killed apply ends by itself.
        """
        deadline, backoff = Deadline(seconds), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        has_waited = False
        while True:
            lease = ApplyLease.from_state(self._header)
            if lease is None or lease.until_ms <= self._context.clock():
                return has_waited
            if deadline.left() <= 0:
                until = iso_from_ms(lease.until_ms)
                raise ApplyConflict.in_progress(lease.principal, lease.since, until)
            await asleep(min(backoff.next_s(), max(deadline.left(), 0)))
            has_waited = True
            self._header = await self._get(0)

    async def end_expired_lease(self) -> bool:
        """End the expired lease of another apply; return whether this call has ended a lease.

        A late write of the other apply may still be under way. It is refused from now on, so it
        cannot change the state that the next plan is made from.
        """
        if ApplyLease.from_state(self._header) is None:
            return False
        return await self._put_header(self._header)

    async def take_lease(self, pages: int) -> bool:
        """Take the lease if the state is as it was read; return whether the lease was taken.

        ``pages`` is the number of pages that the apply will write. It is stored with the lease, so
        that a reader finds all pages if the apply is killed.
        """
        now_ms = self._context.clock()
        owner = new_event_id(now_ms)
        since = iso_from_ms(now_ms)
        self._lease = ApplyLease(owner, now_ms + self._lease_ms, since, self._principal)
        if await self._put_header({**self._header, "pages": pages}):
            return True
        self._lease = None
        return False

    async def renew_lease(self) -> None:
        """Extend the lease if half of its time is over."""
        lease = self._lease
        assert lease is not None, "only its holder renews a lease"
        now_ms = self._context.clock()
        if lease.until_ms - now_ms < self._lease_ms // 2:
            self._lease = lease._replace(until_ms=now_ms + self._lease_ms)
            if not await self._put_header(self._header):
                raise lost_lease()

    async def release(self) -> None:
        """Release the lease after a failure, so that the next apply can begin at once.

        If the release fails, the lease ends by itself.
        """
        if self._lease is not None:
            self._lease = None
            with suppress(ZAELimiterError):  # the caller raises the first failure
                await self._put_header(self._header)

    @property
    def guard(self) -> Guard:
        """The condition of every write of the holder: the first page is as the holder wrote it."""
        assert self.revision is not None, "the lease is taken first"
        return Guard(FIRST_PAGE, self.revision)

    # --- writing

    async def write(self, managed: Managed, *, release: bool = False) -> None:
        """Write the changed pages, from the last to the first; ``release`` ends the lease."""
        encoded = state.encode(managed, len(self._pages))
        for number in range(len(encoded.pages), 0, -1):
            page = encoded.pages[number - 1]
            if not _is_same(page, self._pages.get(number)):
                await self.renew_lease()
                self._pages[number] = await self._put_page(number, page)
        if release:
            self._lease = None
            now = iso_from_ms(self._context.clock())
            encoded.header.update(applied_at=now, applied_by=self._principal)
        elif _is_same(encoded.header, self._header):
            return
        if not await self._put_header({**self._header, **encoded.header}):
            raise lost_lease()

    async def _put_page(self, number: int, page: Document) -> Document:
        before = self._pages.get(number) or {}
        document = {**page, "revision": new_event_id(self._context.clock())}
        written = await self._context.engine.documents.replace(
            self._context.namespace_id,
            page_key(number),
            document,
            revision=before.get("revision"),
            guard=self.guard,
        )
        if not written:
            raise lost_lease()
        return document

    async def _put_header(self, header: Document) -> bool:
        lease = None if self._lease is None else self._lease.to_dict()
        revision = new_event_id(self._context.clock())
        document = {**header, "revision": revision, "lease": lease}
        written = await self._context.engine.documents.replace(
            self._context.namespace_id, FIRST_PAGE, document, revision=self.revision
        )
        if written:
            self._header = document
        return written


def lost_lease() -> ApplyConflict:
    return ApplyConflict(
        "another apply has taken over, because this apply was stopped for longer than its lease; "
        "the changes that it had made stay, and the other apply continues from there: plan again"
    )


def _is_same(fields: Document, stored: Document | None) -> bool:
    return stored is not None and all(stored.get(name) == fields[name] for name in fields)
