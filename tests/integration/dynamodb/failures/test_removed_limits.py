"""Who has removed a limit is asked at most a few times a second, and errors do without it."""

import pytest

from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, RateLimiter, Repository, ValidationError

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 90)


NOW_MS = 1_767_225_600_000


@pytest.fixture
async def limiter(stack, proxy, unique_name):
    """A limiter whose clock stands still."""
    builder = Repository.builder().url(store_url(stack, proxy.url)).namespace(unique_name)
    builder.clock(lambda: NOW_MS).request_timeout(10).register_missing_namespace()
    async with await builder.build() as repository, RateLimiter(repository) as opened:
        await repository.set_system_defaults([RPM, TPM])
        await repository.set_resource_defaults("gpt-4", [TPM], "eve")
        yield opened


async def reason_of(limiter, entity_id):
    with pytest.raises(ValidationError) as caught:
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    return caught.value.reason


async def test_a_role_without_the_right_to_read_events_gets_the_plain_error(limiter, proxy):
    with proxy.fault("deny", operation="Query"):
        reason = await reason_of(limiter, "key-1")
    assert reason == "is not a limit of 'gpt-4'; its limits are tpm"


async def test_a_storm_of_errors_is_no_storm_of_reads(limiter, proxy):
    assert "was removed by eve" in await reason_of(limiter, "key-1")
    with proxy.measure() as seen:
        for _ in range(100):
            assert "was removed by eve" in await reason_of(limiter, "key-1")
    assert seen.operations == {}
    with proxy.measure() as seen:
        for number in range(100):
            await reason_of(limiter, f"tenant-{number}")
    # Of the entity, the resource and the system; the first lookup was made in this second, too.
    assert seen.operations["Query"] == 3 * 4
