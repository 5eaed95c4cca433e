"""Programs that were written for the documents run as they are.

Each test makes the calls of one example of the documents, on a local server where an example names
a stack. ``NOT_AS_WRITTEN`` lists the examples that cannot run, with the reason and a proof.
"""

import asyncio
import warnings

import pytest

from tests.support.dynamodb import DynamoServer
from zae_limiter import (
    EntityExistsError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    StackOptions,
    SyncRateLimiter,
    SyncRepository,
)

RPM, TPM = Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)
BOUNDARY = "arn:aws:iam::aws:policy/PowerUserAccess"
NOT_AS_WRITTEN = {
    ("performance-guide", "cascade optimization"): "creates the entity api-key twice",
    ("rate-limit-operations", "cascade not working"): "leaves arguments out; runs with them",
    ("rate-limit-operations", "verification after changes"): "has placeholders, no Python",
    ("rate-limit-operations", "aws dynamodb"): (
        "keys and names of tables are of a schema without namespaces; bucket show, entity show, "
        "bucket reset and entity set-limits do the same"
    ),
    ("architecture-v0", "negative buckets"): "names neither entity nor resource",
    ("project-reference", "generate sync"): "tools/unasync.py, by make fix",
    ("project-reference", "uv, conda"): "make sets up the environment",
    ("performance-guide", "run benchmarks"): "python -m benchmarks, by make bench",
}


@pytest.fixture(scope="module")
def server():
    """A server that has the table of the default stack."""
    with DynamoServer() as server:
        SyncRepository.open(endpoint_url=server.url, provision="table").close()
        yield server


@pytest.fixture(autouse=True)
def account(server, monkeypatch, request):
    """An account whose DynamoDB is the server; a namespace for each test."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": server.url,
        "ZAEL_NAMESPACE": request.node.name[-60:].strip("_"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("ZAEL_URL", "ZAEL_STACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def repo():
    """As most examples open it: the default stack, made if it is missing."""
    async with Repository.open() as repo:
        yield repo


@pytest.fixture
def limiter(repo):
    return RateLimiter(repository=repo)


async def test_opening_with_every_documented_argument(server):
    for options in (
        {},
        {"namespace": "my-app"},
        {"config_cache_ttl": 120},
        {"config_cache_ttl": 0},
        {"endpoint_url": server.url},
        {"stack": "zae-limiter", "region": "us-east-1", "auto_update": True},
    ):
        async with Repository.open(**options) as repo:
            limiter = RateLimiter(repository=repo, speculative_writes=True)
            assert await limiter.is_available()


async def test_a_builder_with_options_of_the_stack():
    builder = (
        Repository.builder()
        .namespace("default")
        .config_cache_ttl(120)
        .lambda_memory(512)
        .enable_alarms(False)
        .permission_boundary(BOUNDARY)
        .role_name_format("PowerUserPB-{}")
        .policy_name_format("PowerUserPB-{}")
        .usage_retention_days(90)
        .audit_retention_days(90)
        .alarm_sns_topic("arn:aws:sns:us-east-1:123456789012:alerts")
        .enable_audit_archival(True)
        .audit_archive_glacier_days(90)
        .enable_tracing(False)
        .create_iam_roles(False)
        .create_iam(True)
        .aggregator_role_arn(None)
        .enable_deletion_protection(False)
        .tags({"team": "platform"})
    )
    async with await builder.build() as repo:
        assert repo.namespace_name == "default"


def test_a_sync_repository_in_every_parallel_mode():
    for mode in ("auto", "gevent", "threadpool", "serial"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gevent is not patched in, or there is one processor
            with SyncRepository.open(parallel_mode=mode) as repo:
                limiter = SyncRateLimiter(repository=repo)
                with limiter.acquire("key", "gpt-4", {"rpm": 1}, limits=[RPM]):
                    pass


async def test_namespaces_that_share_a_client(repo):
    await repo.register_namespace("tenant-beta")
    beta = await repo.namespace("tenant-beta")
    assert (await repo.register_namespaces(["tenant-beta"]))["tenant-beta"] == beta.namespace_id
    assert await RateLimiter(repository=beta).is_available()


async def test_the_deprecated_ways_to_open():
    with pytest.warns(DeprecationWarning, match="deprecated"):
        repo = Repository(
            name="zae-limiter", region="us-east-1", stack_options=StackOptions(lambda_memory=512)
        )
    async with repo:
        await repo.ensure_infrastructure()
        assert await RateLimiter(repository=repo).is_available()
    for multiplier in (14, 0):
        with pytest.warns(DeprecationWarning, match="deprecated"):
            limiter = RateLimiter(name="zae-limiter", bucket_ttl_refill_multiplier=multiplier)
        async with limiter:
            assert await limiter.is_available()


async def test_one_lease_for_several_limits(limiter):
    async def call_llm():
        return {"total_tokens": 620}

    async with limiter.acquire("entity-id", "llm-api", {"rpm": 1}, limits=[RPM, TPM]) as lease:
        response = await call_llm()
        await lease.adjust(tpm=response["total_tokens"])
    async with (
        limiter.acquire("entity-id", "llm-api", {"rpm": 1}, limits=[RPM]),
        limiter.acquire("entity-id", "llm-api", {"tpm": 100}, limits=[TPM]),
    ):
        pass
    async with limiter.acquire(
        entity_id="user-123", resource="api", limits=[RPM], consume={"rpm": 1}
    ) as lease:
        assert lease.consumed == {"rpm": 1}


async def test_limits_before_consume(limiter):
    """As one example has it; it works, and warns."""
    with pytest.warns(DeprecationWarning, match="consume comes first"):
        acquire = limiter.acquire("entity", "api", [RPM], {"rpm": 1})
    async with acquire as lease:
        assert lease.consumed == {"rpm": 1}


async def test_cascade_as_an_argument(limiter):
    """It is a property of the entity; the argument is accepted, and warns."""
    daily = [Limit.per_day("rpd", 100)]
    await limiter.create_entity("child-id", parent_id="parent-id", cascade=True)
    with pytest.warns(DeprecationWarning, match="create_entity"):
        acquire = limiter.acquire(
            entity_id="child-id", cascade=True, resource="api", consume={"rpd": 1}, limits=daily
        )
    async with acquire:
        pass
    assert await limiter.available("parent-id", "api", daily) == {"rpd": 99}


async def test_a_cascade_and_entities_spread_by_hand(limiter):
    await limiter.create_entity(entity_id="api-key", parent_id="project-1", cascade=True)
    async with limiter.acquire("api-key", "llm-api", {"rpm": 1}, limits=[RPM]):
        pass
    parent = f"project-1-shard-{hash('api-key-12345') % 10}"
    await limiter.create_entity(entity_id="api-key-12345", parent_id=parent, cascade=True)
    assert [child.id for child in await limiter.get_children(parent)] == ["api-key-12345"]


async def test_limits_in_bulk_and_a_deletion(limiter):
    for entity in ("entity-1", "entity-2"):
        await limiter.create_entity(entity)
        await limiter.set_limits(entity, [RPM, TPM], resource="llm-api")
    await limiter.delete_entity("entity-2")
    ids, _ = await limiter.list_entities_with_custom_limits("llm-api")
    assert ids == ["entity-1"]


async def test_the_cache_of_limits(repo, limiter):
    await limiter.set_system_defaults([RPM])
    async with limiter.acquire("user-1", "api", {"rpm": 1}):
        pass
    await repo.invalidate_config_cache()
    stats = repo.get_cache_stats()
    assert stats.ttl_seconds == 60
    assert stats.hits + stats.misses > 0
    assert stats.size >= 0


async def test_a_verification_by_a_hundred_calls():
    with pytest.warns(DeprecationWarning, match="deprecated"):
        limiter = RateLimiter(name="zae-limiter", region="us-east-1")
    limits = [Limit.per_minute("rpm", 20)]

    async def admitted():
        for number in range(100):
            try:
                async with limiter.acquire(
                    entity_id="test-entity", resource="test", limits=limits, consume={"rpm": 1}
                ):
                    pass
            except RateLimitExceeded as rejected:
                return number, rejected.retry_after_seconds
        return 100, 0

    async with limiter:
        number, seconds = await admitted()
    assert 20 <= number < 100
    assert seconds > 0


async def test_limits_adjusted_at_runtime(limiter):
    await limiter.create_entity("api-key-123")
    limits = [Limit.per_minute("rpm", 1000), Limit.per_minute("tpm", 100_000)]
    await limiter.update_entity(entity_id="api-key-123", limits=limits)
    left = await limiter.available(entity_id="api-key-123", resource="gpt-4", limits=limits)
    assert left == {"rpm": 1000, "tpm": 100_000}
    assert await limiter.get_limits("api-key-123") == limits


async def test_levels_of_configuration(limiter):
    await limiter.set_system_defaults(limits=[RPM], on_unavailable="allow")
    await limiter.set_resource_defaults("gpt-4", [TPM])
    await limiter.set_limits("user-123", [RPM], "gpt-4")
    assert await limiter.get_system_defaults() == ([RPM], "allow")
    assert await limiter.get_resource_defaults("gpt-4") == [TPM]
    assert await limiter.list_resources_with_defaults() == ["gpt-4"]
    assert await limiter.list_resources_with_entity_configs() == ["gpt-4"]
    await limiter.delete_limits("user-123", "gpt-4")
    await limiter.delete_resource_defaults("gpt-4")
    await limiter.delete_system_defaults()


async def test_what_cannot_run_as_written(limiter):
    assert len(NOT_AS_WRITTEN) == 8
    await limiter.create_entity(entity_id="api-key", parent_id="project-1")
    with pytest.raises(EntityExistsError):
        await limiter.create_entity(entity_id="api-key", parent_id="project-1", cascade=True)
    with pytest.raises(TypeError, match="entity_id"):
        limiter.acquire(consume={"tpm": 500})


def test_in_a_program_of_its_own():
    """The smallest whole program of the documents."""

    async def main():
        repo = await Repository.open()
        limiter = RateLimiter(repository=repo)
        await limiter.set_system_defaults([Limit.per_minute("tpm", 10_000, burst=15_000)])
        async with limiter.acquire("key", "gpt-4", {"tpm": 500}) as lease:
            await lease.adjust(tpm=2000 - 500)
        left = await limiter.available("key", "gpt-4")
        await repo.close()
        return left["tpm"]

    assert 13_000 <= asyncio.run(main()) <= 15_000
