"""A shielded coroutine is seen through, whatever becomes of its caller."""

import asyncio

import pytest

from zae_limiter.runtime.finishing import agather_shielded, ashield
from zae_limiter.runtime.parallel import Parallel


class Work:
    """Waits for each of its futures in turn; the last one's result is its own."""

    def __init__(self, count):
        self.waits = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self.has_begun = self.is_over = False

    async def __call__(self):
        self.has_begun = True
        try:
            for future in self.waits:
                found = await future
            return found
        finally:
            self.is_over = True

    async def finish(self, result="done", error=None):
        """One wait after the other ends."""
        for future in self.waits[:-1]:
            future.set_result(None)
            await turns()
        if error is None:
            self.waits[-1].set_result(result)
        else:
            self.waits[-1].set_exception(error)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture(params=[1, 2, 3])
async def work(request):
    return Work(request.param)


async def started(work):
    task = asyncio.ensure_future(ashield(work))
    await turns()
    return task


async def test_the_result_is_handed_over(work):
    task = await started(work)
    await work.finish(7)
    assert await task == 7


async def test_an_error_is_handed_over(work):
    task = await started(work)
    await work.finish(error=OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await task


async def test_what_does_not_wait_is_over_at_once():
    async def work():
        return 3

    assert await ashield(work) == 3


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_cancellation_is_raised_when_the_work_is_over(work, times):
    task = await started(work)
    for _ in range(times):
        assert task.cancel("enough")
        await turns()
    assert not task.done()
    assert not work.is_over
    await work.finish()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.is_over
    assert task.cancelled()


async def test_a_cancellation_comes_before_an_error(work):
    task = await started(work)
    task.cancel()
    await turns()
    await work.finish(error=OSError())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_moment_of_the_answer_is_raised_after_it(work):
    """The future is done already, the task has not gone on yet."""
    task = await started(work)
    await work.finish()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.is_over


async def test_a_cancellation_before_the_first_step_starts_nothing(work):
    task = asyncio.ensure_future(ashield(work))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.has_begun


async def test_a_timeout_of_the_caller_is_told_when_the_work_is_over(work):
    async def caller():
        async with asyncio.timeout(0.01):
            await ashield(work)

    task = asyncio.ensure_future(caller())
    await asyncio.sleep(0.05)
    assert not task.done()
    await work.finish()
    with pytest.raises(TimeoutError):
        await task


async def test_shields_within_shields(work):
    task = asyncio.ensure_future(ashield(lambda: ashield(work)))
    await turns()
    task.cancel()
    await turns()
    assert not task.done()
    await work.finish()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.is_over


def test_the_end_of_the_loop_waits_for_what_is_under_way():
    seen = []

    async def work():
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, answer.set_result, "written")
        seen.append(await answer)

    async def main():
        asyncio.ensure_future(ashield(work)).add_done_callback(seen.append)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert seen[0] == "written"
    assert seen[1].cancelled()


# --- side by side


@pytest.fixture(params=[1, 2])
async def other(request):
    return Work(request.param)


async def started_both(*works):
    async def both():
        return await agather_shielded(Parallel("serial"), *works)

    task = asyncio.ensure_future(ashield(both))
    await turns()
    return task


@pytest.mark.parametrize("first", [0, 1])
async def test_both_results_are_in_order_whichever_ends_first(work, other, first):
    task = await started_both(work, other)
    ends = [(work, "a"), (other, "b")]
    for each, result in (ends[first], ends[1 - first]):
        await each.finish(result)
        await turns()
        assert each.is_over  # whether or not the other one is
    assert await task == ["a", "b"]


@pytest.mark.parametrize("failing", [0, 1])
async def test_an_error_of_one_is_raised_when_both_are_over(work, other, failing):
    works = work, other
    task = await started_both(*works)
    await works[failing].finish(error=OSError("gone"))
    await turns()
    assert not task.done()
    await works[1 - failing].finish()
    with pytest.raises(OSError, match="gone"):
        await task
    assert all(each.is_over for each in works)


async def test_of_two_errors_the_first_in_order_is_raised(work, other):
    task = await started_both(work, other)
    await other.finish(error=OSError("second"))
    await work.finish(error=OSError("first"))
    with pytest.raises(OSError, match="first"):
        await task


@pytest.mark.parametrize("first", [0, 1])
async def test_a_cancellation_is_raised_when_both_are_over(work, other, first):
    works = work, other
    task = await started_both(*works)
    task.cancel()
    await turns()
    await works[first].finish()
    await turns()
    task.cancel()
    await turns()
    assert not task.done()
    assert not works[1 - first].is_over
    await works[1 - first].finish()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(each.is_over for each in works)


async def test_what_does_not_wait_is_over_at_once_beside_another(work):
    async def at_once():
        return 3

    task = await started_both(at_once, work)
    await work.finish(4)
    assert await task == [3, 4]
    assert await ashield(lambda: agather_shielded(Parallel("serial"), at_once)) == [3]


async def test_a_future_that_is_done_at_the_same_moment_as_the_others():
    works = Work(1), Work(2)
    task = await started_both(*works)
    works[0].waits[0].set_result("a")
    works[1].waits[0].set_result(None)
    await turns()
    assert not task.done()
    works[1].waits[1].set_result("b")
    assert await task == ["a", "b"]


def test_the_end_of_the_loop_waits_for_both():
    seen = []

    async def write(seconds):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_later(seconds, answer.set_result, "written")
        seen.append(await answer)

    async def both():
        calls = [lambda: write(0.05), lambda: write(0.03)]
        await agather_shielded(Parallel("serial"), *calls)

    async def main():
        asyncio.ensure_future(ashield(both)).add_done_callback(seen.append)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert seen[:2] == ["written", "written"]
    assert seen[2].cancelled()
