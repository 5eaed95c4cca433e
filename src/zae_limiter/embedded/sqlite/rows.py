"""Values to and from the columns of SQLite.

Amounts are JSON text, so that no integer is too large for a column.
"""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.admission.image import BucketImage, LimitState, Rate, is_quota
from zae_limiter.admission.rate_text import rate_of, text_of
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage, milli_of, whole_amounts
from zae_limiter.admission.windows import QUOTA_FIELDS, plain_quota, quota_of
from zae_limiter.exceptions import IncompatibleSchemaError, RateLimiterUnavailable
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode

BUCKET_FORMAT = 4  # counts up when the text of a bucket changes its meaning
_COUNTING_FORMAT = 2  # the bucket has no held slots and no pause
_PLAIN_FORMAT = 1  # the bucket also has no counts of children and no tally
_TALLY_AT = 7  # position of the tally, after format and limits
_HOLDS_AT = 8  # position of the held slots, after format and limits
ENTITY_COLUMNS = "entity_id, name, parent_id, cascade, metadata, created_at"
NAMESPACE_COLUMNS = "namespace_id, name, status, created_at, deleted_at"
USAGE_COLUMNS = "hour, counters, events, through_children, tally"
EVENT_COLUMNS = "event_id, timestamp, action, entity_id, principal, resource, details"

Row = tuple[Any, ...]

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder().raw_decode


def encode_bucket(image: BucketImage) -> str:
    """Write ``[format, {name: limit}, config_version, expires, hour, admitted, counted, writes]``.

    A limit is ``[balance, [capacity, refill, period], consumed, counted]``, a quota or soft limit
    ``[balance, notation, consumed, counted, [[[window, expires], held], ...], topped, mark,
    exhausted]``. ``1`` follows the expiry of what children hold. The number of a limit's life comes
    last, unless it is 0. If there are such counts, ``{name: through children}`` and the values of
    ``Tally.stored`` follow. If calls have held slots or quotas, or the bucket is paused, ``{name:
    [[expires, slots], ...]}, end of the pause, life`` follow, too. The text is formatted by hand, a
    third faster than by ``json``, because every charge writes it. Names of limits have no character
    that JSON would escape.
    """
    limits = ",".join(
        [
            f'"{key}":{_encode_rate(state) if state.rate.terms is None else _encode_terms(state)}'
            for key, state in image.limits.items()
        ]
    )
    _, version, expires_ms, hour, admitted, counted, writes, *_ = image
    through, tally, holds = image.through_children, image.tally, image.holds
    paused, life = image.paused_until_ms, image.life
    expires = "null" if expires_ms is None else expires_ms
    text = f"{{{limits}}},{version},{expires},{hour},{admitted},{counted},{writes}"
    has_life = holds is not None or paused is not None or life != ""
    if through is None and tally.is_empty and not has_life:
        return f"[{_PLAIN_FORMAT},{text}]"
    of_children = "null"
    if through is not None:
        amounts = ",".join([f'"{name}":{amount}' for name, amount in through.items()])
        of_children = f"{{{amounts}}}"
    counts = encode_tally(tally)
    if not has_life:
        return f"[{_COUNTING_FORMAT},{text},{of_children},{counts}]"
    held = "null"
    if holds is not None:
        held = _encode({key: list(moments.items()) for key, moments in holds.items()})
    end = "null" if paused is None else paused
    return f'[{BUCKET_FORMAT},{text},{of_children},{counts},{held},{end},"{life}"]'


def _encode_rate(state: LimitState) -> str:
    capacity, refill, period, _ = state.rate
    counts = f"{state.consumed_milli},{state.counted_milli}"
    if state.number:
        counts = f"{counts},{state.number}"
    return f"[{state.balance_milli},[{capacity},{refill},{period}],{counts}]"


def _encode_terms(state: LimitState) -> str:
    fields = [state.balance_milli, text_of(state.rate), state.consumed_milli, state.counted_milli]
    fields += plain_quota(state.quota)
    return _encode([*fields, state.number] if state.number else fields)


def _decode_limit(
    balance: int, rate: list[int] | str, consumed: int, counted: int, *more: Any
) -> LimitState:
    if not isinstance(rate, str):
        capacity, refill, period = rate
        number = more[0] if more else 0
        return LimitState(balance, Rate(capacity, refill, period), consumed, counted, number=number)
    parsed = rate_of(rate)
    at = QUOTA_FIELDS if is_quota(parsed) else 0
    quota, number = quota_of(*more[:at]), more[at] if len(more) > at else 0
    return LimitState(balance, parsed, consumed, counted, quota, number)


def encode_tally(tally: Tally) -> str:
    """Write ``Tally.stored``: of rejections often the first four values and the last one."""
    return _encode(tally.stored())


def decode_bucket(text: str) -> BucketImage:
    try:
        form, limits, *rest = _decode(text)[0]
        if form in (_PLAIN_FORMAT, _COUNTING_FORMAT, BUCKET_FORMAT):
            if form >= _COUNTING_FORMAT:
                rest[_TALLY_AT] = Tally.from_stored(rest[_TALLY_AT])
            if form == BUCKET_FORMAT and rest[_HOLDS_AT] is not None:
                holds = rest[_HOLDS_AT]
                rest[_HOLDS_AT] = {key: dict(moments) for key, moments in holds.items()}
            states = {key: _decode_limit(*fields) for key, fields in limits.items()}
            return BucketImage(states, *rest)
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise _damaged("bucket", text, error) from error
    raise IncompatibleSchemaError(form, BUCKET_FORMAT, "update zae-limiter to read this file")


def encode_config(config: LevelConfig) -> str:
    """Write ``{"limits": [[name, capacity, amount, period], ...], "on_unavailable": ...}``.

    A quota, and a soft limit, has its notation as a fifth value. A level with a switch also has
    ``"mode": [mode, until in milliseconds]``.
    """
    limits = [limit.stored() for limit in config.limits]
    body: dict[str, Any] = {"limits": limits, "on_unavailable": config.on_unavailable}
    if config.switch is not None:
        body["mode"] = [config.switch.mode.value, config.switch.until_ms]
    return _encode(body)


def decode_config(text: str) -> LevelConfig:
    try:
        data = json.loads(text)
        policy = data["on_unavailable"]
        return LevelConfig(
            tuple(Limit.from_stored(*fields) for fields in data["limits"]),
            None if policy is None else OnUnavailable(policy),
            switch=_decode_switch(*data["mode"]) if "mode" in data else None,
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged("configuration", text, error) from error


def _decode_switch(mode: str, until_ms: int | None) -> Switch:
    return Switch(SwitchMode(mode), until_ms)


def encode_entity(entity: Entity) -> Row:
    metadata = encode_document(entity.metadata)
    return entity.id, entity.name, entity.parent_id, entity.cascade, metadata, entity.created_at


def decode_entity(row: Row) -> Entity:
    entity_id, name, parent_id, cascade, metadata, created_at = row
    return Entity(entity_id, name, parent_id, bool(cascade), decode_document(metadata), created_at)


def encode_namespace(namespace: Namespace) -> Row:
    return (
        namespace.namespace_id,
        namespace.name,
        namespace.status,
        namespace.created_at,
        namespace.deleted_at,
    )


def encode_event(event: AuditEvent) -> Row:
    return (
        event.event_id,
        event.timestamp,
        event.action,
        event.entity_id,
        event.principal,
        event.resource,
        encode_document(event.details),
    )


def decode_event(row: Row) -> AuditEvent:
    event_id, timestamp, action, entity_id, principal, resource, details = row
    body = decode_document(details)
    return AuditEvent(event_id, timestamp, action, entity_id, principal, resource, body)


def encode_usage(usage: HourUsage) -> Row:
    hour, used, admitted, through_children, tally = usage
    through = _encode(whole_amounts(through_children))
    return hour, _encode(whole_amounts(used)), admitted, through, encode_tally(tally)


def decode_usage(
    hour: int, counters: str, events: int, through_children: str, tally: str
) -> HourUsage:
    return HourUsage(
        hour,
        milli_of(decode_document(counters)),
        events,
        milli_of(decode_document(through_children)),
        Tally.from_stored(_decode(tally)[0]),
    )


def encode_document(value: dict[str, Any]) -> str:
    return _encode(value)


def decode_document(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged("document", text, error) from error
    return value


def _damaged(what: str, text: str, error: Exception) -> RateLimiterUnavailable:
    return RateLimiterUnavailable(
        f"the row of a {what} is damaged ({text[:40]!r}); write it again or delete it", cause=error
    )
