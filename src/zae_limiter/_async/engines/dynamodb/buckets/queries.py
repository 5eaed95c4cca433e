"""Queries of buckets: one, those of an entity or resource, the capacity of a resource."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter._async.engines.dynamodb.sharding.shard_reader import ShardReader
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.report import bucket_states, resource_capacity
from zae_limiter.admission.shards.tree import is_whole
from zae_limiter.clock import Clock
from zae_limiter.dynamodb.items import bucket as bucket_item
from zae_limiter.dynamodb.items import entities, keys
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.bucket import BucketId, StoredBucket
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.sharding.known_shards import whole_image
from zae_limiter.models.bucket import BucketState, ResourceCapacity


class BucketQueries:
    """Finds buckets through the indexes, which hold keys only, and reads the items by key."""

    def __init__(self, client: DynamoClient, reader: ShardReader) -> None:
        self._client = client
        self._reader = reader

    async def image(self, bucket_id: BucketId, clock: Clock) -> BucketImage | None:
        """Return one bucket with all of its shards combined; None if it does not exist."""
        shards = await self._shards(bucket_id)
        return whole_image(shards, clock()) if shards else None

    async def states(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        clock: Clock,
        *,
        brought: bool = True,
    ) -> list[BucketState]:
        """Return all buckets of an entity, of a resource, or of both."""
        images = await self._images(namespace_id, entity_id, resource, clock)
        now_ms = clock()
        return [
            state
            for (entity, name), image in sorted(images.items())
            for state in bucket_states(entity, name, image, now_ms, brought=brought)
        ]

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """Sum one limit over its entities; limits of calls are left out.

        An entity that is not registered has no parent.
        """
        of_resource = await self.states(namespace_id, None, resource, clock, brought=False)
        states = [state for state in of_resource if state.limit_name == limit_name]
        if parents_only:
            children = await self._children(namespace_id, {state.entity_id for state in states})
            states = [state for state in states if state.entity_id not in children]
        return resource_capacity(resource, limit_name, states)

    async def _children(self, namespace_id: str, entity_ids: set[str]) -> set[str]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in sorted(entity_ids)]
        items = await batch_get(self._client, wanted, consistent=False)
        registered = [entities.decode(item) for item in items.values()]
        return {entity.id for entity in registered if not entity.is_parent}

    async def _images(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> dict[tuple[str, str], BucketImage]:
        """Return buckets by entity and resource, limits by name."""
        if entity_id is not None and resource is not None:
            buckets = await self._shards(BucketId(namespace_id, entity_id, resource))
            shards = {(entity_id, resource): buckets} if buckets else {}
        else:
            shards = await self._read(await self._keys(namespace_id, entity_id, resource))
        images = {}
        for entity_and_resource, buckets in shards.items():
            image = whole_image(buckets, clock())
            images[entity_and_resource] = image._replace(limits=dict(sorted(image.limits.items())))
        return images

    async def _shards(self, bucket_id: BucketId) -> list[StoredBucket]:
        shards = await self._reader.read_all(bucket_id, None, self._client.deadline())
        return [bucket_item.in_full(each.item) for each in shards.values()]

    async def _read(self, wanted: list[Key]) -> dict[tuple[str, str], list[StoredBucket]]:
        """Read buckets by key; those that were split or merged meanwhile are read once more."""
        items = await batch_get(self._client, wanted, consistent=True)
        read: dict[BucketId, list[StoredBucket]] = {}
        for key, item in items.items():
            bucket_id = BucketId(*schema.parse_bucket_pk(key.pk)[:3])
            read.setdefault(bucket_id, []).append(bucket_item.in_full(item))
        whole = {}
        for bucket_id, buckets in read.items():
            fits = is_whole([each.shard for each in buckets])
            shards = buckets if fits else await self._shards(bucket_id)
            if shards:
                whole[bucket_id.entity_id, bucket_id.resource] = shards
        return whole

    async def _keys(
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
        return [Key.of(item) for item in await query.all()]
