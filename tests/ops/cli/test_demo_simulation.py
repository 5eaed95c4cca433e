import asyncio

import pytest

from tests.ops.cli.broken import BROKEN, open_broken
from tests.ops.cli.idle_time import idle_clock, run_in_idle_time
from zae_limiter import Repository
from zae_limiter_lab.cli.demo import report_result
from zae_limiter_lab.demo.run import DemoOptions, run_demo

OPTIONS = DemoOptions(seconds=1.2)


def test_engines_that_let_too_much_through_are_found_out(capsys):
    """In idle time: on a busy machine the callers could not use up the limits."""

    async def verdict(buckets):
        result = await run_demo(await open_broken(buckets), OPTIONS, clock=idle_clock())
        code = report_result(result, OPTIONS, "table")
        out = capsys.readouterr().out
        return code, "invariant VIOLATED" in out, "invariant holds" in out

    async def verdicts():
        return await asyncio.gather(*map(verdict, BROKEN))

    found = run_in_idle_time(verdicts())
    assert dict(zip(BROKEN, found, strict=True)) == dict.fromkeys(BROKEN, (1, True, False))


def test_a_right_engine_is_not_although_its_limits_are_used_up():
    """In idle time: on a busy machine the callers could not use up the limits."""
    seen = []

    async def demo():
        async with await Repository.open(url="memory://") as repository:
            return await run_demo(repository, OPTIONS, seen.append, 0.4, clock=idle_clock())

    result = run_in_idle_time(demo())
    assert result.violations == []
    assert report_result(result, OPTIONS, "json") == 0
    assert seen[-1].seconds == pytest.approx(OPTIONS.seconds)
    assert len(seen) == 3
    shares = [(each.granted + each.debts) / each.allowed for each in result.windows]
    assert sum(share > 0.999 for share in shares) >= 4
    assert any(window.debts for window in result.windows)
    assert any(window.given_back for window in result.windows)
    uses = {
        (each.entity_id, use.limit.name): use for each in result.entities for use in each.limits
    }
    assert uses["acme", "rpm"].refused > 0  # a project that holds its keys back
    assert uses["globex-web", "rpm"].refused > 0
    assert uses["globex-batch", "tpm"].given_back > 0
    assert result.failed > 0


async def test_projects_count_the_calls_of_their_keys():
    async with await Repository.open(url="memory://") as repository:
        result = await run_demo(repository, DemoOptions(seconds=0.5, tenants=2))
        states = await repository.get_resource_buckets("gpt-4")
    consumed = {(state.entity_id, state.limit_name): state.total_consumed_milli for state in states}
    for project in result.projects:
        keys = [each for each in result.entities if each.parent_id == project.entity_id]
        assert len(keys) == 2
        for counter in ("admitted", "limited", "adjusted", "failed"):
            assert getattr(project, counter) == sum(getattr(key, counter) for key in keys)
    for entity in result.entities:
        for use in entity.limits:
            assert use.used * 1000 == consumed[entity.entity_id, use.limit.name]


async def test_a_cancelled_run_gives_back_what_its_calls_had_taken():
    async with await Repository.open(url="memory://") as repository:
        seen = []
        running = asyncio.create_task(
            run_demo(repository, DemoOptions(seconds=30, tenants=1), seen.append, 0.1)
        )
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        states = await repository.get_resource_buckets("gpt-4", "rpm")
    assert len(states) == 3
    for state in states:
        count = seen[-1].counts[state.entity_id]
        ended = count.adjusted - count.failed
        just_as_estimated = 3  # not adjusted, and rare
        assert ended <= state.total_consumed_milli // 1000 <= ended + just_as_estimated
