"""Looking at buckets."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.reading import Query, batch_get
from zae_limiter._async.engines.dynamodb.survey import Survey
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.report import bucket_states, resource_capacity
from zae_limiter.admission.shards.tree import is_whole
from zae_limiter.clock import Clock
from zae_limiter.dynamodb.sights import whole_image
from zae_limiter.dynamodb.view import Place
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.records.dynamodb import bucket_item, entities, keys
from zae_limiter.records.dynamodb.attributes import Item, s
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.keys import Key


class Inspection:
    """Indexes say which buckets there are; the items themselves are read by key."""

    def __init__(self, client: DynamoClient, survey: Survey) -> None:
        self._client = client
        self._survey = survey

    async def image(self, place: Place, clock: Clock) -> BucketImage | None:
        """One bucket as it is now, all of its shards together."""
        found = await self._shards(place)
        return whole_image(found, clock()) if found else None

    async def states(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        clock: Clock,
        *,
        brought: bool = True,
    ) -> list[BucketState]:
        """All buckets of an entity, of a resource, or of both."""
        found = await self._images(namespace_id, entity_id, resource, clock)
        now_ms = clock()
        return [
            state
            for (entity, name), image in sorted(found.items())
            for state in bucket_states(entity, name, image, now_ms, brought=brought)
        ]

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """One limit over its entities, without what calls brought; the unknown have no parent."""
        found = await self.states(namespace_id, None, resource, clock, brought=False)
        states = [state for state in found if state.limit_name == limit_name]
        if parents_only:
            children = await self._children(namespace_id, {state.entity_id for state in states})
            states = [state for state in states if state.entity_id not in children]
        return resource_capacity(resource, limit_name, states)

    async def _children(self, namespace_id: str, entity_ids: set[str]) -> set[str]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in sorted(entity_ids)]
        items = await batch_get(self._client, wanted, consistent=False)
        found = [entities.decode(item) for item in items.values()]
        return {entity.id for entity in found if not entity.is_parent}

    async def _images(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> dict[tuple[str, str], BucketImage]:
        """Buckets by entity and resource, limits by name."""
        if entity_id is not None and resource is not None:
            found = await self._shards((namespace_id, entity_id, resource))
            shards = {(entity_id, resource): found} if found else {}
        else:
            shards = await self._listed(await self._found(namespace_id, entity_id, resource))
        images = {}
        for place, buckets in shards.items():
            image = whole_image(buckets, clock())
            images[place] = image._replace(limits=dict(sorted(image.limits.items())))
        return images

    async def _shards(self, place: Place) -> list[StoredBucket]:
        found = await self._survey.whole(place, None, self._client.deadline())
        return [bucket_item.in_full(each.item) for each in found.values()]

    async def _listed(self, wanted: list[Key]) -> dict[tuple[str, str], list[StoredBucket]]:
        """Buckets by key; those that were split or merged meanwhile are read once more."""
        items = await batch_get(self._client, wanted, consistent=True)
        read: dict[Place, list[StoredBucket]] = {}
        for key, item in items.items():
            place = schema.parse_bucket_pk(key.pk)[:3]
            read.setdefault(place, []).append(bucket_item.in_full(item))
        found = {}
        for place, buckets in read.items():
            fits = is_whole([each.shard for each in buckets])
            shards = buckets if fits else await self._shards(place)
            if shards:
                found[place[1], place[2]] = shards
        return found

    async def _found(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> list[Key]:
        if entity_id is not None:
            index, partition = "GSI3", schema.gsi3_pk_entity(namespace_id, entity_id)
        else:
            index, partition = "GSI2", schema.gsi2_pk_resource(namespace_id, resource or "")
        query = Query(
            self._client,
            f"{index}PK = :pk AND begins_with({index}SK, :sk)",
            {":pk": s(partition), ":sk": s("BUCKET#")},
            index=index,
        )
        found: list[Item] = await query.all()
        return [Key.of(item) for item in found]
