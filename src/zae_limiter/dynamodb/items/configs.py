"""Stored limits: one item per configuration level, each limit in three attributes.

    system     {ns}/SYSTEM#               #CONFIG               also counts config_version
    resource   {ns}/RESOURCE#{resource}   #CONFIG
    entity     {ns}/ENTITY#{entity}       #CONFIG#{resource}    found by resource through GSI3

``l_{limit}_cp``, ``_ra`` and ``_rp`` are capacity and refill amount in tokens and the period in
seconds; of a limit on calls in flight the slots, 0 and the TTL of a lease. ``limit_names`` keeps
their order. ``rev`` names the change that wrote the level.
"""

from __future__ import annotations

from typing import Any

from zae_limiter import schema
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import (
    Item,
    damaged,
    integer,
    n,
    optional_integer,
    optional_text,
    s,
)
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.transact_items import REVISION, require_revision
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.exceptions import NamespaceStateError, RateLimiterUnavailable
from zae_limiter.models.config import ConfigLevel, LevelConfig, OnUnavailable
from zae_limiter.models.limit import Limit

VERSION = "config_version"
PURGING = "purging"  # in the system's item: the namespace is being purged
POLICY = "on_unavailable"
ORDER = "limit_names"
PREFIX, CAPACITY, AMOUNT, PERIOD = "l_", "_cp", "_ra", "_rp"
SEPARATOR = ","  # no limit's name contains it


def key(namespace_id: str, level: ConfigLevel) -> Key:
    """Return the key of a configuration level's item."""
    if level.entity_id:
        return keys.entity_config(namespace_id, level.entity_id, level.resource)
    if level.resource:
        return keys.resource_config(namespace_id, level.resource)
    return keys.system_config(namespace_id)


def encode(namespace_id: str, level: ConfigLevel, config: LevelConfig, revision: str) -> Item:
    """Return the item of a resource's or an entity's level."""
    own_key = key(namespace_id, level)
    item = {
        **own_key.attributes,
        **keys.namespace_index(namespace_id, own_key, level.entity_id),
        "resource": s(level.resource),
        **_body(config, revision),
    }
    if level.entity_id:
        item["entity_id"] = s(level.entity_id)
        item["GSI3PK"] = s(schema.gsi3_pk_entity_config(namespace_id, level.resource))
        item["GSI3SK"] = s(schema.gsi3_sk_entity_config(level.entity_id))
    return item


def system_update(
    namespace_id: str, before: Item | None, config: LevelConfig | None, revision: str
) -> UpdateExpression:
    """Replace the system's limits, or remove them; the version in the same item is counted up."""
    update = version_bump(namespace_id)
    require_revision(update, before)
    after = {} if config is None else _body(config, revision)
    for name, value in after.items():
        update.set(name, value)
    for name in _written(before or {}):
        if name not in after:
            update.remove(name)
    return update


def version_bump(namespace_id: str) -> UpdateExpression:
    """Count a change of the namespace's configuration, unless the namespace is being purged."""
    system_key = keys.system_config(namespace_id)
    update = UpdateExpression(system_key.attributes)
    update.require(f"attribute_not_exists({update.name(PURGING)})")
    update.set_all(keys.namespace_index(namespace_id, system_key))
    update.add(VERSION, 1)
    return update


def purge_mark(namespace_id: str) -> UpdateExpression:
    """Tell clients, which read this item with their limits, that the namespace is being purged."""
    update = UpdateExpression(keys.system_config(namespace_id).attributes)
    update.set(PURGING, n(1))
    return update


def is_purging(item: Item | None) -> bool:
    return item is not None and PURGING in item


def refuse_if_purging(namespace_id: str, item: Item | None) -> None:
    """Raise NamespaceStateError if the system's item carries the mark of a purge."""
    if is_purging(item):
        raise NamespaceStateError(namespace_id, "is being purged; register a new namespace")


def decode(item: Item | None) -> LevelConfig | None:
    """Return what a level holds; None if the item holds nothing but a version."""
    if item is None:
        return None
    try:
        limits = tuple(_limit(item, name) for name in _names(item))
        policy = _policy(item)
        return LevelConfig(limits, policy) if limits or policy is not None else None
    except (KeyError, ValueError) as error:
        raise damaged("configuration", item, error) from error


def kept_policy(item: Item | None) -> OnUnavailable | None:
    """Return the outage policy of a level, whatever its limits look like; None if damaged."""
    try:
        return _policy(item) if item else None
    except (KeyError, ValueError):
        return None


def holds_limits(item: Item) -> bool:
    """Return whether the level is configured, be it readable or damaged."""
    return any(name != REVISION for name in _written(item))


def described(item: Item | None) -> dict[str, Any] | None:
    """Return what the audit log says of a level before a change; it may be damaged."""
    try:
        config = decode(item)
    except RateLimiterUnavailable:
        return {"damaged": True}
    return None if config is None else config.to_dict()


def decode_version(item: Item | None) -> int:
    return (optional_integer(item, VERSION) if item else None) or 0


def _policy(item: Item) -> OnUnavailable | None:
    policy = optional_text(item, POLICY)
    return None if policy is None else OnUnavailable(policy)


def _body(config: LevelConfig, revision: str) -> Item:
    body = {REVISION: s(revision), ORDER: s(SEPARATOR.join(limit.name for limit in config.limits))}
    for limit in config.limits:
        body[f"{PREFIX}{limit.name}{CAPACITY}"] = n(limit.capacity)
        body[f"{PREFIX}{limit.name}{AMOUNT}"] = n(limit.refill_amount)
        body[f"{PREFIX}{limit.name}{PERIOD}"] = n(limit.refill_period_seconds)
    if config.on_unavailable is not None:
        body[POLICY] = s(config.on_unavailable.value)
    return body


def _written(item: Item) -> list[str]:
    """Return the attributes of an item that belong to its level."""
    own = (REVISION, ORDER, POLICY)
    return [
        name
        for name in item
        if name in own or (name.startswith(PREFIX) and name.endswith((CAPACITY, AMOUNT, PERIOD)))
    ]


def _names(item: Item) -> list[str]:
    """Return names of limits in their stored order; those that it misses come last, sorted."""
    names = {
        name[len(PREFIX) : -len(CAPACITY)]
        for name in item
        if name.startswith(PREFIX) and name.endswith(CAPACITY)
    }
    ordered = (optional_text(item, ORDER) or "").split(SEPARATOR)
    first = [name for name in ordered if name in names]
    return first + sorted(names.difference(first))


def _limit(item: Item, name: str) -> Limit:
    values = (integer(item[f"{PREFIX}{name}{part}"]) for part in (CAPACITY, AMOUNT, PERIOD))
    return Limit.from_stored(name, *values)
