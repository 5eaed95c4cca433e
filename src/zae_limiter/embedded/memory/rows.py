"""Rows of the memory store as bytes."""

from __future__ import annotations

from dataclasses import replace
from marshal import dumps, loads
from typing import Any

from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.rate_text import rate_of, text_of
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage, milli_of, whole_amounts
from zae_limiter.admission.windows import plain_quota, quota_of
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode

# Without back references, which cost time and save nothing in so small a value. The bytes never
# leave the process, so that the format may differ between versions of Python.
_FORMAT = 2
LIMIT_FIELDS = 7  # values of one limit in the bytes of a bucket
_TALLY_AT = 7  # position of the tally in the fields of a bucket, behind its limits


def pack(value: Any) -> bytes:
    """Return plain values (text, numbers, lists, mappings) as bytes."""
    try:
        return dumps(value, _FORMAT)
    except ValueError:  # subclasses of str and int, such as members of an enumeration
        return dumps(_exact(value), _FORMAT)


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {_exact(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def pack_bucket(image: BucketImage) -> bytes:
    """Return ``(fields, name, balance, capacity, refill, period, consumed, counted, ...)``.

    A mapping at the end has, by name, the number of a limit's life, the terms of quotas and soft
    limits, and the state of quotas.
    """
    limits, holds, tally = image.limits, image.holds, image.tally
    fields: list[Any] = list(image[1:])
    fields[_TALLY_AT] = _plain_tally(tally)
    # Left out, as others that are what their defaults say.
    if image.paused_until_ms is None and not image.life:
        del fields[-2:]
        if holds is None:
            del fields[-3 if image.through_children is None and tally.is_empty else -1 :]
    flat: list[Any] = [fields]
    extras: dict[str, Any] = {}
    for key, state in limits.items():
        flat += (key, state.balance_milli, *state.rate[:3])
        flat += (state.consumed_milli, state.counted_milli)
        if state.rate.terms is not None:
            extras[key] = (state.number, text_of(state.rate), *plain_quota(state.quota))
        elif state.number:
            extras[key] = (state.number,)
    if extras:
        flat.append(extras)
    return pack(flat)


def unpack_bucket(packed: bytes) -> BucketImage:
    fields, *flat = loads(packed)
    extras = flat.pop() if len(flat) % LIMIT_FIELDS else {}
    limits = {
        flat[at]: LimitState(flat[at + 1], Rate(*flat[at + 2 : at + 5]), *flat[at + 5 : at + 7])
        for at in range(0, len(flat), LIMIT_FIELDS)
    }
    for key, (number, *terms) in extras.items():
        limits[key].number = number
        if terms:
            text, *quota = terms
            limits[key] = replace(limits[key], rate=rate_of(text), quota=quota_of(*quota))
    if len(fields) > _TALLY_AT:
        fields[_TALLY_AT] = Tally.from_stored(fields[_TALLY_AT])
    return BucketImage(limits, *fields)


def _plain_tally(tally: Tally) -> tuple[Any, ...]:
    return () if tally.is_empty else tally.stored()


def pack_usage(usage: HourUsage) -> bytes:
    """Return ``(whole tokens, admitted, ...)``."""
    fields: list[Any] = [whole_amounts(usage.used), usage.admitted]
    if usage.through_children or not usage.tally.is_empty:
        fields += (whole_amounts(usage.through_children), _plain_tally(usage.tally))
    return pack(fields)


def unpack_usage(hour: int, packed: bytes) -> HourUsage:
    used, admitted, *more = loads(packed)
    usage = HourUsage(hour, milli_of(used), admitted)
    if not more:
        return usage
    through_children, tally = more
    return usage._replace(
        through_children=milli_of(through_children), tally=Tally.from_stored(tally)
    )


def pack_config(config: LevelConfig) -> bytes:
    limits = [limit.stored() for limit in config.limits]
    policy, switch = config.on_unavailable, config.switch
    mode = () if switch is None else (switch.mode.value, switch.until_ms)
    return pack((limits, None if policy is None else policy.value, mode))


def unpack_config(packed: bytes) -> LevelConfig:
    limits, policy, mode = loads(packed)
    return LevelConfig(
        tuple(Limit.from_stored(*fields) for fields in limits),
        None if policy is None else OnUnavailable(policy),
        switch=Switch(SwitchMode(mode[0]), mode[1]) if mode else None,
    )


def pack_entity(entity: Entity) -> bytes:
    return pack((entity.name, entity.parent_id, entity.cascade, entity.metadata, entity.created_at))


def unpack_entity(entity_id: str, packed: bytes) -> Entity:
    return Entity(entity_id, *loads(packed))


def pack_event(event: AuditEvent) -> bytes:
    return pack(
        (
            event.event_id,
            event.timestamp,
            event.action,
            event.entity_id,
            event.principal,
            event.resource,
            event.details,
        )
    )


def unpack_event(packed: bytes) -> AuditEvent:
    return AuditEvent(*loads(packed))
