"""Methods of the repository that read, reset, top up and pause buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import check_amounts, check_positive
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import (
    check_cursor,
    check_entity_id,
    check_limit_name,
    check_principal,
    check_resource,
)

if TYPE_CHECKING:
    from zae_limiter.models.bucket import BucketEntry, BucketState, ResourceCapacity

MAX_PAGE = 10**6  # bounds the memory of a page
DELIMITER = "#"  # in cursors; entities and resources do not contain it


class BucketMethods(RepositoryMixin):
    """Read, reset, top up and pause buckets."""

    async def get_bucket(
        self, entity_id: str, resource: str, limit_name: str
    ) -> BucketState | None:
        """Return one limit of a bucket; None if it was never used, so that it is full."""
        check_limit_name(limit_name, "limit_name")
        for state in await self.get_buckets(entity_id, check_resource(resource)):
            if state.limit_name == limit_name:
                return state
        return None

    async def get_buckets(self, entity_id: str, resource: str | None = None) -> list[BucketState]:
        """Return all buckets of an entity, or those on one resource."""
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource)
        return await self._context.engine.buckets.states(
            self._context.namespace_id, entity_id, resource, self._context.clock
        )

    async def get_bucket_in_force(self, entity_id: str, resource: str) -> list[BucketState]:
        """Return the limits of a bucket as they are in force, with the levels they have then.

        A change of limits reaches a bucket with its next charge. Until then ``get_buckets`` shows
        the limits that it was last charged under. A bucket that was never used is full.
        """
        from zae_limiter.admission.report import bucket_states, shown_under_limits

        context, names = self._context, (check_entity_id(entity_id), check_resource(resource))
        resolved = await self.charging.resolve(*names, context.clock())
        image = await context.engine.buckets.get(context.namespace_id, *names, context.clock)
        now_ms, in_force = context.clock(), resolved.in_force
        if in_force is not None:
            image = shown_under_limits(image, in_force, now_ms)
        return [] if image is None else bucket_states(*names, image, now_ms)

    async def get_last_use(self, entity_id: str, resource: str) -> str | None:
        """Return the hour, as ISO text, in which a bucket was last charged or settled.

        None if the bucket was never used or has expired.
        """
        context, entity = self._context, check_entity_id(entity_id)
        image = await context.engine.buckets.get(
            context.namespace_id, entity, check_resource(resource), context.clock
        )
        if image is None or not image.hour:
            return None
        return iso_from_ms(image.hour * HOUR_MS)

    async def get_resource_buckets(
        self, resource: str, limit_name: str | None = None
    ) -> list[BucketState]:
        """Return the buckets of all entities on a resource."""
        if limit_name is not None:
            check_limit_name(limit_name, "limit_name")
        states = await self._context.engine.buckets.states(
            self._context.namespace_id, None, check_resource(resource), self._context.clock
        )
        return [state for state in states if limit_name is None or state.limit_name == limit_name]

    async def list_buckets(
        self,
        limit: int = 100,
        cursor: str | None = None,
        *,
        entity_id: str | None = None,
        resource: str | None = None,
    ) -> tuple[list[BucketState], str | None]:
        """Return a page of ``limit`` buckets, and the cursor of the next page (None at the end).

        The buckets are those of the whole namespace, of an entity, of a resource, or of both, with
        one state per limit. They come in the store's own order. A bucket that is created or expires
        meanwhile may be missing or listed. On DynamoDB, a bucket in a form that this version cannot
        read is left out, and the log names it.
        """
        states, last = await self._context.engine.buckets.page(
            self._context.namespace_id,
            None if entity_id is None else check_entity_id(entity_id),
            None if resource is None else check_resource(resource),
            after=_position(cursor),
            limit=min(check_positive(limit, "limit"), MAX_PAGE),
            clock=self._context.clock,
        )
        return states, None if last is None else DELIMITER.join(last)

    async def read_buckets(self, buckets: Sequence[tuple[str, str]]) -> list[BucketState]:
        """Return the buckets of these pairs of entity and resource, each read by its key.

        They come in this order, with one state per limit; missing ones are left out. On DynamoDB
        the answer may lag a moment behind, for half the price of a consistent read.
        """
        wanted = [(check_entity_id(each), check_resource(name)) for each, name in buckets]
        return await self._context.engine.buckets.some(
            self._context.namespace_id, list(dict.fromkeys(wanted)), self._context.clock
        )

    async def list_bucket_entries(
        self, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[BucketEntry], str | None]:
        """Return a page of the namespace's buckets, not yet decoded, and the next cursor.

        This is for readers that list all buckets again and again: an entry with a revision that
        they have seen has the same content as before.
        """
        entries, last = await self._context.engine.buckets.entries(
            self._context.namespace_id,
            after=_position(cursor),
            limit=min(check_positive(limit, "limit"), MAX_PAGE),
        )
        return entries, None if last is None else DELIMITER.join(last)

    async def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """Sum one limit of a resource over all its entities, or over those without a parent.

        Each entity that has a bucket there counts once: with its configured limit, or, if only
        calls with limits of their own were made, with the largest of these of that name.
        """
        return await self._context.engine.buckets.capacity(
            self._context.namespace_id,
            check_resource(resource),
            check_limit_name(limit_name, "limit_name"),
            parents_only,
            self._context.clock,
        )

    async def reset_bucket(
        self, entity_id: str, resource: str, principal: str | None = None
    ) -> None:
        """Fill every limit of a bucket. The audit log shows the added tokens; usage stays.

        A reset of a full bucket is not logged.
        """
        await self._context.engine.buckets.reset(
            self._context.namespace_id,
            check_entity_id(entity_id),
            check_resource(resource),
            now_ms=self._context.clock(),
            principal=check_principal(principal),
        )

    async def top_up(
        self,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        principal: str | None = None,
    ) -> None:
        """Add whole tokens, up to the capacity. The audit log shows them; usage stays.

        A quota gets the whole amount until its window ends, even beyond its own amount. A top-up
        that adds nothing is not logged.
        """
        checked = check_amounts(amounts, "amounts")
        if not checked:
            raise ValidationError("amounts", amounts, "must name at least one limit")
        names, author = (check_entity_id(entity_id), check_resource(resource)), principal
        resolved = await self.charging.resolve(*names, self._context.clock())
        await self._context.engine.buckets.top_up(
            self._context.namespace_id,
            *names,
            checked,
            in_force=resolved.in_force,
            now_ms=self._context.clock(),
            principal=check_principal(author),
        )

    async def pause(
        self, entity_id: str, resource: str, seconds: float, principal: str | None = None
    ) -> None:
        """Stop a bucket from admitting calls of any client for a while, at most 10 minutes.

        Calls are rejected, with the rest of the pause as their ``retry_after_seconds``; calls with
        a ``timeout`` wait for its end. Open leases go on and are settled. Levels and usage stay as
        they are. A second pause never shortens the first one, and 0 seconds lift a pause.
        """
        from zae_limiter.models.bucket import check_pause  # no acquire needs it

        duration_ms = math.ceil(check_pause(seconds) * 1000)
        names = check_entity_id(entity_id), check_resource(resource)
        author, context = check_principal(principal), self._context
        resolved = await self.charging.resolve(*names, context.clock())
        now_ms = context.clock()
        await context.engine.buckets.pause(
            context.namespace_id,
            *names,
            now_ms + duration_ms,
            in_force=resolved.in_force,
            now_ms=now_ms,
            principal=author,
        )


def _position(cursor: str | None) -> tuple[str, str] | None:
    """Return the entity and resource in a cursor: the last bucket of the page before."""
    if check_cursor(cursor) is None:
        return None
    entity_id, delimiter, resource = str(cursor).partition(DELIMITER)
    if not delimiter:
        raise ValidationError("cursor", cursor, "must be a cursor that list_buckets has returned")
    return entity_id, resource
