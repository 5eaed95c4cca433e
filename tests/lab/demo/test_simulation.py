import asyncio

import pytest

from sim.virtual_time import loop_clock, run_in_virtual_time
from tests.lab.demo.broken import BROKEN, open_broken
from zae_limiter import Repository
from zae_limiter_lab.cli.demo import report_result
from zae_limiter_lab.demo.log import BucketLimit
from zae_limiter_lab.demo.run import run_demo
from zae_limiter_lab.demo.scenario import RESOURCE
from zae_limiter_lab.demo.traffic import DemoOptions

OPTIONS = DemoOptions(seconds=1.2)


def test_engines_that_let_too_much_through_are_found_out(capsys):
    """In idle time: on a busy machine the callers could not use up the limits."""

    async def verdict(buckets):
        result = await run_demo(await open_broken(buckets), OPTIONS, clock=loop_clock())
        code = report_result(result, "table")
        out = capsys.readouterr().out
        return code, "invariant VIOLATED" in out, "invariant holds" in out

    async def verdicts():
        return await asyncio.gather(*map(verdict, BROKEN))

    found = run_in_virtual_time(verdicts())
    assert dict(zip(BROKEN, found, strict=True)) == dict.fromkeys(BROKEN, (1, True, False))


def test_a_right_engine_is_not_blamed():
    """In idle time: on a busy machine the callers could not use up the limits."""
    seen = []

    async def demo():
        async with await Repository.open(url="memory://") as repository:
            return await run_demo(repository, OPTIONS, seen.append, 0.4, clock=loop_clock())

    result = run_in_virtual_time(demo())
    assert result.violations == []
    assert report_result(result, "json") == 0
    assert result.seconds == pytest.approx(OPTIONS.seconds, abs=0.2)
    assert len(seen) == 3
    assert sum(each.share > 0.999 for each in result.windows) >= 4
    assert any(window.debts for window in result.windows)
    assert any(window.given_back for window in result.windows)
    assert result.counts["acme"].refused_by["rpm"] > 0  # a project that holds its keys back
    assert result.counts["globex-web"].refused_by["rpm"] > 0
    assert result.log.limits["globex-batch", RESOURCE, "tpm"].given_back > 0
    assert result.total.failed > 0


async def test_projects_count_the_calls_of_their_keys():
    async with await Repository.open(url="memory://") as repository:
        result = await run_demo(repository, DemoOptions(seconds=0.5, tenants=2))
        states = await repository.get_resource_buckets("gpt-4")
    consumed = {(state.entity_id, state.limit_name): state.total_consumed_milli for state in states}
    for project in (each for each in result.entities if each.parent_id is None):
        children = [each for each in result.entities if each.parent_id == project.entity_id]
        keys = [result.counts[each.entity_id] for each in children]
        assert len(keys) == 2
        for counter in ("admitted", "limited", "adjusted", "failed"):
            of_project = getattr(result.counts[project.entity_id], counter)
            assert of_project == sum(getattr(key, counter) for key in keys)
    for entity in result.entities:
        for limit in entity.limits:
            log = result.log.entries(BucketLimit(entity.entity_id, RESOURCE, limit.name))
            assert log.used * 1000 == consumed[entity.entity_id, limit.name]


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
