"""Stored limits: one item per configuration level, each limit in three attributes.

    system     {ns}/SYSTEM#               #CONFIG               also counts config_version
    resource   {ns}/RESOURCE#{resource}   #CONFIG
    entity     {ns}/ENTITY#{entity}       #CONFIG#{resource}    found by resource through GSI3

``l_{limit}_cp``, ``_ra`` and ``_rp`` are the capacity and the refill amount in tokens, and the
period in seconds. A limit on calls in flight has its slots, 0, and the TTL of a lease there. A
quota, and a soft limit, has its notation in ``l_{limit}_nt``.
``limit_names`` keeps the order of the limits. ``rev`` names the change that wrote the level.
``mode`` is the mode of a resource or an entity, and ``mode_until`` its end in milliseconds.
"""

from __future__ import annotations

from zae_limiter.admission.configuration import Revised, revise_level
from zae_limiter.exceptions import NamespaceStateError, RateLimiterUnavailable
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import (
    REVISION,
    Item,
    damaged,
    integer,
    optional_integer,
    optional_text,
)
from zae_limiter.items.stored.keys import Key
from zae_limiter.models.config import ConfigLevel, LevelChange, LevelConfig, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode

VERSION = "config_version"
PURGING = "purging"  # in the system's item: the namespace is being purged
POLICY = "on_unavailable"
MODE, MODE_UNTIL = "mode", "mode_until"
ORDER = "limit_names"
PREFIX, CAPACITY, AMOUNT, PERIOD, NOTATION = "l_", "_cp", "_ra", "_rp", "_nt"
_PARTS = (CAPACITY, AMOUNT, PERIOD, NOTATION)
SEPARATOR = ","  # no limit's name contains it


def key(namespace_id: str, level: ConfigLevel) -> Key:
    """Return the key of a configuration level's item."""
    if level.entity_id:
        return keys.entity_config(namespace_id, level.entity_id, level.resource)
    if level.resource:
        return keys.resource_config(namespace_id, level.resource)
    return keys.system_config(namespace_id)


def is_purging(item: Item | None) -> bool:
    return item is not None and PURGING in item


def refuse_if_purging(namespace_id: str, item: Item | None) -> None:
    """Raise NamespaceStateError if the system's item carries the mark of a purge."""
    if is_purging(item):
        raise NamespaceStateError(namespace_id, "is being purged; register a new namespace")


def decode(item: Item | None) -> LevelConfig | None:
    """Return the configuration of a level; None if the item has only a version."""
    if item is None:
        return None
    try:
        limits = tuple(_limit(item, name) for name in _names(item))
        config = LevelConfig(limits, _policy(item), switch=_switch(item))
        return None if config.is_empty else config
    except (KeyError, ValueError) as error:
        raise damaged("configuration", item, error) from error


def revise(change: LevelChange, item: Item | None) -> Revised[LevelConfig]:
    """Return a level after a change of its item.

    Damaged limits are an error only if they would stay.
    """
    try:
        before = decode(item)
    except RateLimiterUnavailable:
        if item is None or change.keeps_limits:
            raise
        return revise_level(change, _undamaged(item), is_damaged=True)
    return revise_level(change, before)


def _undamaged(item: Item) -> LevelConfig | None:
    """Return the configuration of a level without its limits; None if that is damaged, too."""
    try:
        return LevelConfig((), _policy(item), _switch(item))
    except (KeyError, ValueError):
        return None


def is_configured(item: Item) -> bool:
    """Return whether the level has limits, a policy or a mode, in a readable or damaged item."""
    return any(name != REVISION for name in written_attributes(item))


def decode_version(item: Item | None) -> int:
    return (optional_integer(item, VERSION) if item else None) or 0


def _policy(item: Item) -> OnUnavailable | None:
    policy = optional_text(item, POLICY)
    return None if policy is None else OnUnavailable(policy)


def _switch(item: Item) -> Switch | None:
    mode = optional_text(item, MODE)
    return None if mode is None else Switch(SwitchMode(mode), optional_integer(item, MODE_UNTIL))


def written_attributes(item: Item) -> list[str]:
    """Return the attributes of an item that belong to its level."""
    own = (REVISION, ORDER, POLICY, MODE, MODE_UNTIL)
    return [
        name for name in item if name in own or (name.startswith(PREFIX) and name.endswith(_PARTS))
    ]


def _names(item: Item) -> list[str]:
    """Return names of limits in their stored order; names without a place come last, sorted."""
    names = {
        name[len(PREFIX) : -len(CAPACITY)]
        for name in item
        if name.startswith(PREFIX) and name.endswith(CAPACITY)
    }
    ordered = (optional_text(item, ORDER) or "").split(SEPARATOR)
    first = [name for name in ordered if name in names]
    return first + sorted(names.difference(first))


def _limit(item: Item, name: str) -> Limit:
    capacity, amount, period = (
        integer(item[f"{PREFIX}{name}{part}"]) for part in (CAPACITY, AMOUNT, PERIOD)
    )
    notation = optional_text(item, f"{PREFIX}{name}{NOTATION}") or ""
    return Limit.from_stored(name, capacity, amount, period, notation)
