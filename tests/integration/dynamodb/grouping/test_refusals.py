"""A bucket that was seen empty is not asked again before it can have filled up."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

USER, API = "user-1", "api"


async def take(limiter, amount=1, entity_id=USER):
    async with limiter.acquire(entity_id, API, {"rpm": amount}):
        pass


async def refusal(limiter, amount=1, entity_id=USER):
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, amount, entity_id)
    return caught.value


@pytest.fixture
async def emptied(repo, limiter):
    await repo.set_system_defaults([Limit.per_minute("rpm", 60)])
    await take(limiter, 60)
    await repo.list_resources()  # waits for what goes on in the background
    return limiter


async def test_refusals_cost_no_call_and_tell_the_exact_wait(emptied, proxy, clock):
    with proxy.measure() as seen:
        for waited_ms in range(0, 1000, 100):
            assert (await refusal(emptied)).retry_after_seconds == (1000 - waited_ms) / 1000
            clock.advance(ms=100)
    assert seen.calls == 0
    with proxy.measure() as seen:
        await take(emptied)
    assert seen.calls == 1


async def test_what_fits_again_is_asked_for(emptied, proxy, clock):
    clock.advance(ms=999)
    with proxy.measure() as seen:
        await refusal(emptied)
        clock.advance(ms=1)
        await take(emptied)
    assert seen.calls == 1


async def test_after_its_time_the_bucket_is_asked_again(emptied, proxy, clock):
    clock.advance(ms=1000)
    with proxy.measure() as seen:
        await refusal(emptied, 50)
    assert seen.calls == 1
    with proxy.measure() as seen:
        await refusal(emptied, 50)
    assert seen.calls == 0


async def test_tokens_that_another_client_gives_back_are_seen_after_the_ttl(
    emptied, open_repo, clock
):
    other = await open_repo()
    await other.reset_bucket(USER, API)
    await refusal(emptied)
    clock.advance(ms=1000)
    await take(emptied, 60)


@pytest.mark.fast("release", "reset", "limits")
@pytest.mark.parametrize("how", ["release", "failure", "reset", "top_up", "limits"])
async def test_what_this_client_gives_back_is_seen_at_once(emptied, repo, clock, how):
    if how == "reset":
        await repo.reset_bucket(USER, API)
    elif how == "top_up":
        await repo.top_up(USER, API, {"rpm": 60})
    elif how == "limits":
        await repo.set_limits(USER, [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 5)])
        await repo.reset_bucket(USER, API)
    else:
        clock.advance(minutes=1)
        try:
            async with emptied.acquire(USER, API, {"rpm": 60}) as lease:
                await refusal(emptied)
                if how == "release":
                    await lease.release(rpm=60)
                    await take(emptied, 60)
                    return
                raise ArithmeticError
        except ArithmeticError:
            pass
    await take(emptied, 60)


async def test_it_can_be_turned_off(open_repo, proxy):
    repo = await open_repo(rejection_cache_ttl=0)
    limiter = RateLimiter(repo)
    await repo.set_system_defaults([Limit.per_minute("rpm", 60)])
    await take(limiter, 60)
    await repo.list_resources()  # waits for what goes on in the background
    with proxy.measure() as seen:
        for _ in range(3):
            await refusal(limiter)
    assert seen.calls == 3


async def test_a_parent_that_is_empty_refuses_its_children_without_a_call(repo, limiter, proxy):
    await repo.set_system_defaults([Limit.per_minute("rpm", 60)])
    for key in ("a", "b"):
        await repo.create_entity(key, parent_id="team", cascade=True)
    await take(limiter, 1, "b")
    await take(limiter, 59, "a")
    with proxy.measure() as seen:
        found = await refusal(limiter, 1, "b")
    assert seen.calls == 0
    assert [(each.entity_id, each.available) for each in found.statuses] == [
        ("b", 59),
        ("team", 0),
    ]


async def test_more_than_the_capacity_is_refused_without_a_call(repo, limiter, proxy):
    await repo.set_system_defaults([Limit.per_minute("rpm", 60)])
    await take(limiter, 1)
    with proxy.measure() as seen:
        assert (await refusal(limiter, 61)).retry_after_header == "86400"
    assert seen.calls == 0
