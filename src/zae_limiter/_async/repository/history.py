"""Methods of the repository that read audit events and usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import check_positive
from zae_limiter.naming import (
    RESERVED_NAMESPACE,
    check_entity_id,
    check_limit_name,
    check_resource,
    check_text,
)

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from zae_limiter.models.audit import AuditEvent
    from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary, WindowName
    from zae_limiter.usage.report import UsageQuery


class HistoryMethods(RepositoryMixin):
    """Read the audit log and usage."""

    async def get_audit_events(
        self, entity_id: str | None = None, limit: int = 100, start_event_id: str | None = None
    ) -> list[AuditEvent]:
        """Return audit events that are older than ``start_event_id``, newest first.

        Changes of defaults are logged under ``$SYSTEM`` and ``$RESOURCE:name``, and lifecycle
        events of a namespace under ``$NAMESPACE:name``. Without an ``entity_id``, the events of all
        subjects of this namespace are returned; on DynamoDB this reads the keys of all items in the
        namespace.
        """
        check_text(start_event_id, "start_event_id")
        check_positive(limit, "limit")
        if entity_id is None:
            return await self._all_events(limit, start_event_id)
        if not check_text(entity_id, "entity_id"):
            raise ValidationError("entity_id", entity_id, "must be an id or a $ subject")
        registry = entity_id.startswith("$NAMESPACE:")
        return await self._context.engine.audit.events(
            RESERVED_NAMESPACE if registry else self._context.namespace_id,
            entity_id,
            start_event_id,
            limit,
        )

    async def _all_events(self, limit: int, start_event_id: str | None) -> list[AuditEvent]:
        """Merge the events in the namespace with those about it, which the registry keeps."""
        from zae_limiter.models.audit import namespace_subject

        context, log = self._context, self._context.engine.audit
        subject = namespace_subject(context.namespace_name)
        about_it = await log.events(RESERVED_NAMESPACE, subject, start_event_id, limit)
        inside = await log.events(context.namespace_id, None, start_event_id, limit)
        merged = sorted(about_it + inside, key=lambda event: event.event_id, reverse=True)
        return merged[:limit]

    async def _log_prices(self, details: dict[str, Any]) -> None:
        """Note in the audit log which prices this process charges; for calls of LLMs alone."""
        from zae_limiter.models.audit import SYSTEM_SUBJECT, AuditAction, AuditedChange

        context = self._context
        change = AuditedChange.by(None, SYSTEM_SUBJECT, context.clock())
        await context.engine.audit.record(
            context.namespace_id, change, AuditAction.PRICES_LOADED, details
        )

    async def get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: WindowName | None = None,
        start_time: str | datetime | None = None,
        end_time: str | datetime | None = None,
        limit: int = 100,
        next_key: str | None = None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        """Return a page of usage windows, oldest first, and the key of the next page.

        The windows start in ``[start_time, end_time)``, and belong to an entity, a resource, or
        both; with neither, to the whole namespace. Ask for the next page with the same arguments.
        """
        check_positive(limit, "limit")
        _check_subject(entity_id, resource)
        # Imported here, since most programs never ask for a report.
        from zae_limiter.usage.report import UsagePage

        query = self._usage_query(window_type, start_time, end_time)
        page, context = UsagePage(query, limit, next_key), self._context
        await context.engine.usage.read(context.namespace_id, entity_id, resource, page)
        return page.end()

    async def get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: WindowName | None = None,
        start_time: str | datetime | None = None,
        end_time: str | datetime | None = None,
    ) -> UsageSummary:
        """Sum usage, with averages per hour with usage, or per day or month by ``window_type``.

        The total of one entity is its whole usage. A total over several entities counts each token
        once: usage of parents through their children is shown apart.
        """
        from zae_limiter.usage.report import UsageTotal

        _check_subject(entity_id, resource)
        context = self._context
        window = window_type or context.snapshot_windows[0]
        query = self._usage_query(window, start_time, end_time)  # type: ignore[arg-type]
        total = UsageTotal(query, entity_id=entity_id, resource=resource)
        await context.engine.usage.read(context.namespace_id, entity_id, resource, total)
        return total.end()

    async def get_top_usage(
        self,
        by: str | None = None,
        last: str | timedelta = "24h",
        *,
        resource: str | None = None,
        limit: int = 10,
    ) -> UsageRanking:
        """Return the largest consumers of the last 24 hours, or of another span such as "7d".

        They are ranked by the tokens of the limit ``by``, or by admitted acquires without it. The
        span is rounded to whole hours and includes the running hour.
        """
        from zae_limiter.usage.ranking import TopUsage, hours_of_last

        check_positive(limit, "limit")
        if by is not None:
            check_limit_name(by, "by")
        _check_subject(None, resource)
        context = self._context
        top = TopUsage(hours_of_last(last, context.clock()), by, limit)
        while top.begin_pass():
            await context.engine.usage.read(context.namespace_id, None, resource, top)
        return top.end()

    def _usage_query(
        self,
        window_type: WindowName | None,
        start_time: str | datetime | None,
        end_time: str | datetime | None,
    ) -> UsageQuery:
        from zae_limiter.models.usage import WindowType
        from zae_limiter.usage.report import UsageQuery

        offered = tuple(WindowType(window) for window in self._context.snapshot_windows)
        now_ms = self._context.clock()
        return UsageQuery.parse(window_type, start_time, end_time, offered, now_ms)


def _check_subject(entity_id: str | None, resource: str | None) -> None:
    if entity_id is not None:
        check_entity_id(entity_id)
    if resource is not None:
        check_resource(resource)
