"""A store of items over a dictionary: the engine over it passes the contract suite."""

import time
from bisect import bisect_right
from collections import defaultdict

from zae_limiter._async.engines.items.engine import ItemsEngine
from zae_limiter._async.engines.items.port import ITEM_AFTER, ITEM_BEFORE, NOTHING
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.items.counters import Counters
from zae_limiter.items.stored.attributes import text
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.query import AFTER, BEFORE, BETWEEN, PREFIX
from zae_limiter.items.stored.update import after, holds
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.runtime.locks import SignalSafeLock
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.store_errors import ConditionFailed, Conflict

TOY = BackendCapabilities(
    engine="toy",
    durable=True,  # the dictionary outlives the clients that open it
    shared_between_processes=False,
    atomic_cascade=False,
    usage_history=True,
)
_stores = defaultdict(lambda: ({}, SignalSafeLock()))  # items and their lock, by the store's name


class ToyStore:
    """Items by their key, in this process; None where an item was deleted.

    A write changes the dictionary in one step of the interpreter, which no signal divides.
    """

    def __init__(self, name, request_timeout=10.0):
        self.name, self.request_timeout = name, request_timeout
        self.counters = Counters()
        self.answered_s = 0.0
        self._items, self._lock = _stores[name]
        self._is_closed = False

    def deadline(self):
        return Deadline(self.request_timeout)

    def _begin(self):
        if self._is_closed:
            raise InfrastructureError("the repository is closed; open it again")
        self.answered_s = time.monotonic()
        self.counters.calls.add()

    # --- reads

    async def get(self, key, deadline=None, *, consistent=True):
        self._begin()
        return self._items.get(key)

    async def get_several(self, keys, *, consistent, deadline=None):
        self._begin()
        wanted = dict.fromkeys(keys)
        with self._lock:
            return {key: item for key in wanted if (item := self._items.get(key)) is not None}

    async def get_many(self, keys):
        return await self.get_several(keys, consistent=True)

    async def get_at_once(self, keys, deadline=None):
        return await self.get_several(keys, consistent=True)

    def query(self, query):
        self._begin()
        with self._lock:
            found = [item for item in self._items.values() if item and _is_wanted(item, query)]
        found.sort(key=lambda item: _place(item, query), reverse=query.newest_first)
        if query.after is not None:
            places = [_place(item, query) for item in found]
            found = found[bisect_right(places, _place(query.after, query)) :]
        return ToyPages(found, query.page_size or len(found))

    # --- writes

    async def update(
        self, update, deadline=None, *, returns=ITEM_AFTER, repeatable=False, throttled=None
    ):
        self._begin()
        with self._lock:
            before = self._items.get(update.key)
            if not holds(update, before):
                raise ConditionFailed(before)
            item = self._items[update.key] = after(update, before)
        return (before or {}) if returns == ITEM_BEFORE else {} if returns == NOTHING else item

    async def put(self, item):
        self._begin()
        self._items[Key.of(item)] = item

    async def write_group(self, writes, deadline, *, repeatable=False):
        self._begin()
        with self._lock:
            before = [self._items.get(each.key) for each in writes]
            refused = [
                item for each, item in zip(writes, before, strict=True) if not holds(each, item)
            ]
            if refused:
                raise Conflict(tuple(refused))
            pairs = zip(writes, before, strict=True)
            self._items.update({each.key: after(each, item) for each, item in pairs})

    async def delete_many(self, keys):
        self._begin()
        with self._lock:
            self._items.update(dict.fromkeys(keys))

    # --- the store

    async def close(self):
        self._is_closed = True

    async def remove(self):
        with self._lock:
            self._items.clear()


class ToyPages:
    """What a query has found, page by page."""

    def __init__(self, found, size):
        self._found, self._size = found, size
        self.is_over = not found

    async def page(self):
        page, self._found = self._found[: self._size], self._found[self._size :]
        self.is_over = not self._found
        return page

    async def all(self, limit=None):
        items = []
        while not self.is_over and (limit is None or len(items) < limit):
            items += await self.page()
        return items if limit is None else items[:limit]


def _is_wanted(item, query):
    if item.get(query.partition_key) != {"S": query.partition}:
        return False
    key = text(item["SK"])
    if query.only and key not in query.only:
        return False
    above, below = query.only_between
    if below and not above < key < below:
        return False
    return query.sort is None or _is_within(text(item[query.sort_key]), *query.sort)


def _is_within(key, word, first, last):
    return {
        PREFIX: key.startswith(first),
        BETWEEN: first <= key <= last,
        AFTER: key > first,
        BEFORE: key < first,
    }[word]


def _place(item, query):
    """What the items of a query are sorted by."""
    return text(item.get(query.sort_key, {"S": ""})), *Key.of(item)


def toy_engine(name, settings):
    store = ToyStore(name, settings.request_timeout)
    return ItemsEngine(store, settings, TOY, Parallel(settings.parallel_mode, warns=False))
