"""The port under the engine: a store of items with conditional writes.

Nothing above it knows which store it is. An *item* is a mapping of names to typed values, under a
key of two texts; the words of a write are explained in ``zae_limiter.items.stored.update``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zae_limiter.clock import Deadline
    from zae_limiter.items.counters import Counters
    from zae_limiter.items.stored.attributes import Item
    from zae_limiter.items.stored.keys import ItemsByKey, Key
    from zae_limiter.items.stored.query import ItemQuery
    from zae_limiter.items.stored.update import ItemUpdate, ItemWrite

MAX_GROUP = 100  # writes of one group, and items that are read as of one moment
MAX_KEYS = 100  # items that ``get_several`` reads in one round trip

# What an update returns.
ITEM_AFTER = "after"  # the item as it is after the update
ITEM_BEFORE = "before"  # what the update has changed, as it was before; empty if it was nothing
NOTHING = ""


class ItemStore(Protocol):
    """Items that many clients read and write at the same time.

    A write is made in one step, at a moment at which its conditions hold for the item as it is, or
    it is refused. Its error says what is known of it (``zae_limiter.store_errors``): after
    ``NotSent`` and ``Throttled`` it was not made and will not be; after ``NoAnswer`` and
    ``ServerFault`` it may have been made, and after ``NoAnswer`` it may still be. A write that has
    begun is never cut off by the caller: it is cancelled before, or its outcome is awaited.

    Numbers are whole, of up to 38 digits, and added and compared exactly: a balance of a quota has
    up to 35. Texts are compared by code point. From the second in its attribute ``ttl`` on, the
    store may remove an item, or leave it.

    Times out at a ``deadline``; without one a call has ``request_timeout``. A ``repeatable`` write
    has the same result if it is made twice: it may be sent again if no answer comes.
    """

    name: str  # for messages
    counters: Counters
    request_timeout: float

    @property
    def answered_s(self) -> float:
        """The moment of the last answer, on the monotonic clock."""

    def deadline(self) -> Deadline:
        """Return the deadline of a call that begins now."""

    async def get(
        self, key: Key, deadline: Deadline | None = None, *, consistent: bool = True
    ) -> Item | None:
        """Return an item; None if there is none.

        A ``consistent`` read sees every write that was answered before it. Another one is cheaper,
        and may be a moment behind.
        """

    async def get_several(
        self, keys: Iterable[Key], *, consistent: bool, deadline: Deadline | None = None
    ) -> ItemsByKey:
        """Return the existing items of some keys, each as of a moment of its own."""

    async def get_many(self, keys: Sequence[Key]) -> ItemsByKey:
        """Return the existing items of very many keys, consistently; each part has a timeout."""

    async def get_at_once(
        self, keys: Iterable[Key], deadline: Deadline | None = None
    ) -> ItemsByKey:
        """Return the existing ones of at most ``MAX_GROUP`` items, all as of one moment."""

    async def update(
        self,
        update: ItemUpdate,
        deadline: Deadline | None = None,
        *,
        returns: str = ITEM_AFTER,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> Item:
        """Change an item, and return what ``returns`` says of it.

        Raises ConditionFailed with the item as it is, None if there is none, if its conditions do
        not hold. ``throttled`` is called whenever the item may be written too often.
        """

    async def put(self, item: Item) -> None:
        """Write an item as a whole, whatever was there. May be made twice."""

    async def write_group(
        self, writes: Sequence[ItemWrite], deadline: Deadline, *, repeatable: bool = False
    ) -> None:
        """Make at most ``MAX_GROUP`` writes of different items in one step, all or none.

        Raises Conflict if another writer came first.
        """

    async def delete_many(self, keys: Sequence[Key]) -> None:
        """Delete items, each by itself; one that does not exist is no error."""

    def query(self, query: ItemQuery) -> ItemPages:
        """Return the pages of a query.

        Of the items themselves it sees every write that was answered before it; an index may be a
        moment behind, and shows at least the keys of its items.
        """

    async def close(self) -> None:
        """Finish the calls in flight and refuse others; a second time does nothing."""

    async def remove(self) -> None:
        """Delete the store itself, with everything in it."""


class ItemPages(Protocol):
    """The items of a query, page by page."""

    is_over: bool

    async def page(self) -> list[Item]:
        """Read the next items; the list is empty only at the end."""

    async def all(self, limit: int | None = None) -> list[Item]:
        """Read all remaining items, or the first ``limit`` of them."""
