"""The thread that renews the board of a namespace while somebody looks at a page.

Only this thread reads listings. Pages use the last board, whose age they show. Nothing is read
while nobody looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter_dashboard.board import Board, Shelf, drain_of
from zae_limiter_dashboard.selection import select
from zae_limiter_ops.views.in_force import as_in_force, changed_buckets
from zae_limiter_ops.views.limit_view import LimitView

if TYPE_CHECKING:
    from zae_limiter import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.limit import Limit

PAGE = 1000  # buckets of one read; a page takes some milliseconds
PARTIAL_S = 0.5  # a first listing is shown after this time, and again as it doubles
WATCHED_S = 20.0  # without a request for so long, nobody looks any more
MAX_AGE_S = 10.0  # of a board on an embedded engine
MAX_PAUSE_S = 5.0
LISTING_S = 60.0  # between two listings where a listing costs units
RETRY_S = 2.0
# A first view waits so long for the board; a listing by requests takes longer than that anyway.
FIRST_S, FIRST_WITH_UNITS_S = 1.0, 0.3
SORT_MEMORY_S = 60.0  # a sorted order that was asked for is prepared for so long
READ_UNITS_PER_LISTED = 1.05  # an item, read consistently, and its entry in an index
READ_UNITS_PER_SHOWN = 0.5  # an item of up to 4 kB, read by key
READ_UNITS_PER_CHANGED = 1.0  # the same, consistently, if its limits have changed since its charge
MAX_READS = 1000  # refreshes of pages between two listings; older ones are forgotten
LimitsOf = Callable[[str, str], Iterable["Limit"]]  # of an entity on a resource


class Refreshed(NamedTuple):
    """Rows that were read now, and the read units of that where reads cost units."""

    rows: list[LimitView]
    units: float


class BoardKeeper:
    """Renews the board of one namespace in a thread of its own while somebody looks."""

    def __init__(
        self,
        repository: Callable[[], SyncRepository],
        *,
        costs_units: bool,
        on_renewed: Callable[[SyncRepository, Board], None] = lambda *_: None,
    ) -> None:
        self._repository = repository
        self._costs_units = costs_units
        self._on_renewed = on_renewed
        self._shelf = Shelf()
        # Buckets that pages have read by key, for the thread, which puts them on the shelf.
        self._read_by_pages: deque[tuple[Sequence[BucketState], int]] = deque(maxlen=MAX_READS)
        self._changed = threading.Condition()
        self._board: Board | None = None
        self._board_at = 0.0  # the monotonic time at which the listing of the board began
        self._problem: Exception | None = None
        self._watched_at = 0.0
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._asked: dict[tuple[str, str], float] = {}  # orders, and when they were asked for

    # --- for pages

    def board(self, wait_s: float | None = None) -> Board:
        """Return the last board; wait a little for the first one, and after nobody has looked.

        Raise the problem of the store if the last listing has failed.
        """
        if wait_s is None:
            wait_s = FIRST_WITH_UNITS_S if self._costs_units else FIRST_S
        deadline = time.monotonic() + wait_s
        has_begun = self._wake()
        with self._changed:
            waits = has_begun or self._board is None
            while waits and not self._is_current() and (left := deadline - time.monotonic()) > 0:
                if self._board is None and self._problem is not None:
                    break
                self._changed.wait(left)
            if self._problem is not None:
                raise self._problem
            if self._board is not None:
                return self._board
        return Board((), (), select(()), 0, int(time.time() * 1000), complete=False, seconds=0.0)

    def sorted_rows(self, board: Board, resource: str, by: str) -> list[LimitView]:
        """Return the rows of a resource in an order, which later boards have at hand."""
        self._asked[resource, by] = time.monotonic()
        return board.in_order(resource, by)

    def first_rows(self, resource: str, limit: int) -> list[LimitView]:
        """Read the first buckets of a resource, while the first listing has not come to them."""
        repository = self._repository()
        states, _ = repository.list_buckets(limit, resource=resource)
        now_ms = repository.charging.clock()
        return [LimitView.at(state, now_ms) for state in states]

    def refreshed(self, rows: Sequence[LimitView], limits_of: LimitsOf) -> Refreshed:
        """Return the same rows with levels that are read now, each bucket by its key.

        They are shown under the limits in force. A bucket that was last charged under others is
        read once more; the board goes on with what is stored, until a charge brings the limits.
        """
        wanted = list(dict.fromkeys(row.bucket for row in rows))
        if not wanted:
            return Refreshed([], 0.0)
        repository = self._repository()
        stored = repository.read_buckets(wanted)
        now_ms = repository.charging.clock()
        self._read_by_pages.append((stored, now_ms))
        changed = changed_buckets(stored, limits_of)
        states = as_in_force(repository, stored, changed)
        units = len(wanted) * READ_UNITS_PER_SHOWN + len(changed) * READ_UNITS_PER_CHANGED
        drains = {(row.bucket, row.limit_name): row for row in rows}
        fresh: dict[tuple[tuple[str, str], str], LimitView] = {}
        for state in states:
            name = ((state.entity_id, state.resource), state.limit_name)
            drain_milli = drain_of(state, drains.get(name))
            fresh.setdefault(name, LimitView.at(state, now_ms, drain_milli=drain_milli))
        found = [fresh.get((row.bucket, row.limit_name)) for row in rows]
        return Refreshed([row for row in found if row is not None], units)

    @property
    def refresh_units(self) -> float | None:
        """Read units of one shown bucket; None where reads cost nothing."""
        return READ_UNITS_PER_SHOWN if self._costs_units else None

    @property
    def listing_units(self) -> float | None:
        """Read units of one listing, about; None where reads cost nothing."""
        if not self._costs_units or self._board is None:
            return None
        return self._board.buckets * READ_UNITS_PER_LISTED

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    # --- the thread

    def _wake(self) -> bool:
        """Note that somebody looks; return whether renewing begins only now."""
        with self._changed:
            self._watched_at = time.monotonic()
            begins = self._thread is None or not self._thread.is_alive()
            if begins:
                self._thread = threading.Thread(
                    target=self._run, name="dashboard board", daemon=True
                )
                self._thread.start()
            return begins

    def _is_current(self) -> bool:
        if self._board is None:
            return False
        limit_s = LISTING_S * 2 if self._costs_units else MAX_AGE_S
        return time.monotonic() - self._board_at <= limit_s

    def _run(self) -> None:
        while not self._is_closed:
            started = time.monotonic()
            try:
                self._renew()
                pause_s = self._pause_s(time.monotonic() - started)
            except ZAELimiterError as error:
                with self._changed:
                    self._problem = error
                    self._changed.notify_all()
                pause_s = RETRY_S
            if not self._sleep(pause_s):
                return

    def _pause_s(self, seconds: float) -> float:
        """Return the pause after a listing, so that no board is shown beyond its greatest age."""
        if self._costs_units:
            return max(0.0, LISTING_S - seconds)
        return max(0.2, min(MAX_PAUSE_S, MAX_AGE_S - 1 - 2 * seconds))

    def _sleep(self, pause_s: float) -> bool:
        """Wait for the next listing; return False if nobody looks any more."""
        until = time.monotonic() + pause_s
        with self._changed:
            while not self._is_closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, 1.0))
            is_watched = time.monotonic() - self._watched_at < WATCHED_S
            if not is_watched:
                self._thread = None
            return is_watched and not self._is_closed

    def _renew(self) -> None:
        repository = self._repository()
        started, cursor, is_first_page = time.monotonic(), None, True
        started_ms = repository.charging.clock()
        show_at, growth_s = started + PARTIAL_S, PARTIAL_S
        self._shelf.begin()
        while not self._is_closed and (is_first_page or cursor is not None):
            entries, cursor = repository.list_bucket_entries(PAGE, cursor)
            self._take_over_reads()
            self._shelf.add(entries, repository.charging.clock())
            is_first_page = False
            is_growing = self._board is None or not self._board.complete
            if is_growing and time.monotonic() >= show_at and cursor is not None:
                self._publish(started, started_ms, complete=False)
                growth_s *= 2  # each board costs as much as it has rows
                show_at = time.monotonic() + growth_s
        self._take_over_reads()
        self._shelf.end()
        board = self._publish(started, started_ms, complete=True)
        self._on_renewed(repository, board)

    def _take_over_reads(self) -> None:
        """Put the buckets that pages have read meanwhile on the shelf."""
        while self._read_by_pages:
            self._shelf.update(*self._read_by_pages.popleft())

    def _publish(self, started: float, started_ms: int, *, complete: bool) -> Board:
        seconds = time.monotonic() - started
        board = self._shelf.board(started_ms, complete=complete, seconds=seconds)
        self._prepare(board)
        with self._changed:
            self._board, self._board_at, self._problem = board, started, None
            self._changed.notify_all()
        return board

    def _prepare(self, board: Board) -> None:
        """Compute the orders that the next requests will probably ask for."""
        now = time.monotonic()
        for order, asked_at in list(self._asked.items()):
            if now - asked_at < SORT_MEMORY_S:
                board.in_order(*order)
            else:
                self._asked.pop(order, None)
