"""Writes of whole items that were read before: they are made if nobody has written since.

A change of the configuration leaves its id on the item as its revision.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.items.stored.attributes import REVISION, Item
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemCheck, ItemDelete, ItemPut, ItemWrite


def put(item: Item, before: Item | None) -> ItemPut:
    """Write an item if the stored item is as it was read."""
    write = ItemPut(item)
    _require_unchanged(write, before)
    return write


def put_new(item: Item) -> ItemPut:
    """Write an item if its key is free."""
    return put(item, None)


def delete(before: Item) -> ItemDelete:
    """Delete an item if it is as it was read."""
    write = ItemDelete(Key.of(before))
    _require_unchanged(write, before)
    return write


def delete_if(key: Key, attribute: str, value: str) -> ItemDelete:
    """Delete an item if an attribute has this value."""
    write = ItemDelete(key)
    write.equal(attribute, value)
    return write


def delete_alike(before: Item, attributes: Sequence[str]) -> ItemDelete:
    """Delete an item if these attributes are as they were read."""
    write = ItemDelete(Key.of(before))
    for name in attributes:
        write.equal(name, before[name])
    return write


def check_revision(key: Key, revision: str) -> ItemCheck:
    """Write nothing, but require that an item has this revision."""
    check = ItemCheck(key)
    check.equal(REVISION, revision)
    return check


def require_revision(write: ItemWrite, before: Item | None) -> None:
    """Require the revision that was read; counters in the same item may have changed."""
    revision = before.get(REVISION) if before else None
    if revision is None:
        write.absent(REVISION)
    else:
        write.equal(REVISION, revision)


def _require_unchanged(write: ItemWrite, before: Item | None) -> None:
    if before is None:
        write.no_item()
        return
    if before.get(REVISION) is None:  # another program has written the item
        write.any_item()
    require_revision(write, before)
