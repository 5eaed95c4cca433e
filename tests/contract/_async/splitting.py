"""A DynamoDB engine that splits every bucket as soon as it is there."""

from fractions import Fraction

from zae_limiter_contract._async.spec import EngineSpec

from tests.contract.engines import DYNAMODB, MOMENT_S, DynamoOutage, dynamodb_url
from zae_limiter._async.builder import RepositoryBuilder
from zae_limiter._async.engines.dynamodb.open import open_dynamodb
from zae_limiter.admission.request import Grant
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.settings import Settings
from zae_limiter.store_url import parse_url

HALVES = (Shard(0, 1),)
THREE = (Shard(0, 1), Shard(0, 2))  # quarters 0 and 2, and half 1


class SplittingBuckets:
    """Passes everything on."""

    def __init__(self, buckets, splits):
        self._buckets, self._splits = buckets, splits
        self._split = set()

    def __getattr__(self, name):
        return getattr(self._buckets, name)

    async def charge(self, namespace_id, request, receipt):
        try:
            return await self._buckets.charge(namespace_id, request, receipt)
        finally:
            if isinstance(receipt.outcome, Grant):
                for charge in receipt.outcome.charges:
                    bucket_id = BucketId(namespace_id, charge.entity_id, charge.resource)
                    await self._break_up(bucket_id, request.clock)

    async def _break_up(self, bucket_id, clock):
        if bucket_id in self._split:
            return
        self._split.add(bucket_id)
        for shard in self._splits:
            await self._buckets.resharder.split(bucket_id, shard, clock, Deadline(10))


class SplitSpec(DynamoOutage, EngineSpec):
    """A table of the test."""

    splits = THREE

    async def open(
        self,
        namespace="default",
        *,
        clock,
        config_cache_ttl=60,
        request_timeout=10,
        on_unavailable=None,
    ):
        settings = Settings(provision="never", request_timeout=request_timeout, clock=clock)
        engine = await open_dynamodb(parse_url(self.url), settings)
        engine.buckets = SplittingBuckets(engine.buckets, self.splits)
        builder = RepositoryBuilder().namespace(namespace).clock(clock)
        builder.config_cache_ttl(config_cache_ttl).on_unavailable(on_unavailable)
        return await builder.register_missing_namespace().over(engine)


class HalvedSpec(SplitSpec):
    splits = HALVES


def split_dynamodb(table, fixtures=(), spec=SplitSpec):
    """Each of the shards rounds its level, and one that is full wastes what it brings."""
    return spec(
        dynamodb_url(table, fixtures),
        DYNAMODB,
        precision_milli=6,
        may_lag=Fraction(1, 4),
        moment_s=MOMENT_S,
    )
