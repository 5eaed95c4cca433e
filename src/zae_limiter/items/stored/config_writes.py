"""Writes of stored limits: items of levels, and the version that each change counts up."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import REVISION, Item, n, s
from zae_limiter.items.stored.configs import (
    AMOUNT,
    CAPACITY,
    MODE,
    MODE_UNTIL,
    NOTATION,
    ORDER,
    PERIOD,
    POLICY,
    PREFIX,
    PURGING,
    SEPARATOR,
    VERSION,
    key,
    written_attributes,
)
from zae_limiter.items.stored.guarded_writes import require_revision
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.models.config import ConfigLevel, LevelConfig


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
) -> ItemUpdate:
    """Replace or remove the system's limits, and count up the version in the same item."""
    update = version_bump(namespace_id)
    require_revision(update, before)
    after = {} if config is None else _body(config, revision)
    for name, value in after.items():
        update.set(name, value)
    for name in written_attributes(before or {}):
        if name not in after:
            update.remove(name)
    return update


def version_bump(namespace_id: str) -> ItemUpdate:
    """Count a change of the namespace's configuration, unless the namespace is being purged."""
    system_key = keys.system_config(namespace_id)
    update = ItemUpdate(system_key)
    update.absent(PURGING)
    update.set_all(keys.namespace_index(namespace_id, system_key))
    update.add(VERSION, 1)
    return update


def purge_mark(namespace_id: str) -> ItemUpdate:
    """Mark a namespace as being purged, in the item that clients read with their limits."""
    update = ItemUpdate(keys.system_config(namespace_id))
    update.set(PURGING, 1)
    return update


def _body(config: LevelConfig, revision: str) -> Item:
    body = {REVISION: s(revision), ORDER: s(SEPARATOR.join(limit.name for limit in config.limits))}
    for limit in config.limits:
        body[f"{PREFIX}{limit.name}{CAPACITY}"] = n(limit.capacity)
        body[f"{PREFIX}{limit.name}{AMOUNT}"] = n(limit.refill_amount)
        body[f"{PREFIX}{limit.name}{PERIOD}"] = n(limit.refill_period_seconds)
        if limit.soft or limit.is_quota:
            body[f"{PREFIX}{limit.name}{NOTATION}"] = s(str(limit))
    if config.on_unavailable is not None:
        body[POLICY] = s(config.on_unavailable.value)
    if config.switch is not None:
        body[MODE] = s(config.switch.mode.value)
        if config.switch.until_ms is not None:
            body[MODE_UNTIL] = n(config.switch.until_ms)
    return body
