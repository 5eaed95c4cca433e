"""Looks up who has removed a limit that a call names; only calls that have failed come here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.resolution import levels
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.audit import SYSTEM_SUBJECT, AuditEvent, resource_subject
from zae_limiter.models.removals import describe_removal, removal_of
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.parallel import agather

if TYPE_CHECKING:
    from zae_limiter._async.repository.context import Context
    from zae_limiter.admission.resolution import UnknownLimit
    from zae_limiter.exceptions import ValidationError

MAX_EVENTS = 20  # of each subject; the change was made a moment ago
LOOK_BACK_TTLS = 10  # config cache times; later, the callers have learnt of the change
LEAST_LOOK_BACK_S = 600
MAX_KEPT = 256  # answers
KEPT_MS = 10_000
LOOKUPS_PER_S = 5  # of a process: a storm of such errors must not become a storm of reads


class _KeptAnswer(NamedTuple):
    text: str
    until_ms: int


class RemovedLimits:
    """Answers who has removed a limit, from the audit log; bounded in memory and in reads."""

    def __init__(self) -> None:
        self._kept: BoundedDict[tuple[str, ...], _KeptAnswer] = BoundedDict(MAX_KEPT)
        self._second = 0
        self._lookups = 0

    async def explained(self, context: Context, error: UnknownLimit) -> ValidationError:
        """Return the error for the caller, with who has removed the limit if the log tells it."""
        return error.plain(await self._removal(context, error) if error.is_stored else "")

    async def _removal(self, context: Context, error: UnknownLimit) -> str:
        key = (context.namespace_id, error.resource, error.limit_name, *error.entity_ids)
        now_ms = context.clock()
        kept = self._kept.get(key)
        if kept is not None and now_ms < kept.until_ms:
            return kept.text
        if not self._may_look(now_ms // 1000):
            return ""
        try:
            text = await _looked_up(context, error, now_ms)
        except ZAELimiterError:  # no right to read the log, or an outage: the plain error will do
            return ""
        self._kept.put(key, _KeptAnswer(text, now_ms + KEPT_MS))
        return text

    def _may_look(self, second: int) -> bool:
        if second != self._second:
            self._second, self._lookups = second, 0
        self._lookups += 1
        return self._lookups <= LOOKUPS_PER_S


async def _looked_up(context: Context, error: UnknownLimit, now_ms: int) -> str:
    back_s = max(LEAST_LOOK_BACK_S, LOOK_BACK_TTLS * context.cache.ttl_seconds)
    since = iso_from_ms(now_ms - int(back_s * 1000))
    subjects = (*error.entity_ids, resource_subject(error.resource), SYSTEM_SUBJECT)
    read, namespace_id = context.engine.audit.events, context.namespace_id
    found: list[list[AuditEvent]] = await agather(
        context.parallel,
        *[partial(read, namespace_id, subject, None, MAX_EVENTS) for subject in subjects],
    )
    recent = [event for events in found for event in events if event.timestamp >= since]
    if not recent:
        return ""
    snapshot = await context.engine.configs.snapshot(
        namespace_id, error.entity_ids[0], error.resource
    )
    name = error.limit_name
    was_hidden = any(
        limit.name == name
        for _, config in levels(snapshot)
        if config is not None
        for limit in config.limits
    )
    removal = removal_of(name, error.resource, recent, was_hidden=was_hidden)
    return "" if removal is None else describe_removal(name, removal)
