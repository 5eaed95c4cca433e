"""Lines of thousands of callers: to join, to leave and to move up stays cheap for each of them."""

import asyncio
from time import monotonic, thread_time

import pytest

from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.admission.image import BucketImage, LimitState, Rate, accrued_since_epoch
from zae_limiter.admission.request import Charge, Grant
from zae_limiter.admission.reservation import reserved
from zae_limiter.waiting.arrival_queue import ArrivalQueue
from zae_limiter.waiting.line import Sleeper, WaitingLine
from zae_limiter.waiting.lines import WaitingLines, line_key

NOW_MS = 1_800_000_000_000
RATE = Rate(10_000, 10_000, 1000)
FEW, MANY = 1000, 8000


def sleeper_at(place):
    balance = -accrued_since_epoch(RATE, NOW_MS) - 1000 * place
    image = BucketImage({"x": LimitState(balance, RATE)}, 0, None, 0, writes=place)
    reservation = reserved(image, {"x": 1000}, (place, 0), {})
    grant = Grant((Charge("user", "api", None, {"x": 1000}),), (), reservation)
    return Sleeper(line_key(grant), reservation), grant


def cancel_each_second(callers):
    """Return the CPU time that each of the cancelled callers takes, dues included."""
    lines, waiting = WaitingLines(), [sleeper_at(place) for place in range(1, callers + 1)]
    for sleeper, _ in waiting:
        lines.reserve(sleeper)
    began_s = thread_time()
    mover = waiting[-1][0]
    for sleeper, grant in waiting[::2]:
        lines.leave(sleeper)
        lines.note_credit(grant, lines.number_credit())
        if lines.moves_in_s(mover) == 0:
            lines.move_up(mover, NOW_MS)
    return (thread_time() - began_s) / (callers // 2)


def test_what_a_cancelled_caller_costs_does_not_grow_with_their_number():
    # The least of each: other work on the machine only adds to processor time.
    few_s, many_s = (min(cancel_each_second(each) for _ in range(3)) for each in (FEW, MANY))
    assert many_s < 5 * few_s  # eight times as much if each walked the line


def test_callers_that_stay_are_due_as_if_the_cancelled_ones_had_never_come():
    line = WaitingLine(now_s=lambda: 0.0)
    waiting = [sleeper_at(place) for place in range(1, FEW + 1)]
    for sleeper, _ in waiting:
        line.add(sleeper)
    for sleeper, grant in waiting[::2]:
        line.remove(sleeper)
        line.note_credit(grant.reservation, 1)
    while line.has_news:
        line.move_up(NOW_MS)
    dues = [sleeper.due_ms - NOW_MS for sleeper, _ in waiting[1::2]]
    assert dues == [100 * (number + 1) for number in range(FEW // 2)]


def test_a_caller_that_comes_after_a_credit_is_not_moved_up_by_it():
    line = WaitingLine(now_s=lambda: 0.0)
    first, second = sleeper_at(1), sleeper_at(2)
    for sleeper, _ in (first, second):
        line.add(sleeper)
    line.remove(first[0])
    line.note_credit(first[1].reservation, 1)
    later, _ = sleeper_at(2)  # its image shows the credit
    later.reservation = later.reservation._replace(place=(4, 0))
    later.after_credit = 1
    line.add(later)
    while line.has_news:
        line.move_up(NOW_MS)
    assert second[0].due_ms == NOW_MS + 100
    assert later.due_ms == NOW_MS + 200


def test_a_caller_that_comes_while_a_credit_is_on_its_way_is_not_moved_up_by_it():
    """Its image may show the credit, even if it was written together with the caller's charge."""
    lines, (first, grant), (second, _) = WaitingLines(), sleeper_at(1), sleeper_at(2)
    lines.reserve(first)
    lines.leave(first)
    credit = lines.number_credit()
    lines.reserve(second)
    lines.note_credit(grant, credit)
    while lines.moves_in_s(second) == 0:
        lines.move_up(second, NOW_MS)
    assert second.due_ms == NOW_MS + 200


def test_a_queue_has_the_order_of_arrival_whoever_leaves():
    queue = ArrivalQueue()
    callers = [Sleeper("key") for _ in range(6)]
    for number, caller in enumerate(callers, 1):
        caller.number = number
    for number in (3, 1, 5, 0, 2, 4):
        queue.add(callers[number])
    queue.discard(callers[0])
    queue.discard(callers[2])
    queue.add(callers[2])  # it stands where it stood
    left = []
    while (caller := queue.first()) is not None:
        left.append(caller.number)
        queue.discard(caller)
    assert left == [2, 3, 4, 5, 6]


def grant_of(*entity_ids):
    return Grant(tuple(Charge(each, "api", None, {}) for each in entity_ids))


def family_of_waiters(lines, *entity_ids):
    """Callers of children that wait for slots of their parent, in the order of arrival."""
    callers = []
    for entity_id in entity_ids:
        caller = Sleeper((entity_id, "api"))
        caller.parent_key = ("parent", "api")
        lines.arrive(caller)
        lines.enter_queue(caller)
        callers.append(caller)
    return callers


def test_a_caller_whose_own_slot_returns_comes_back_before_its_siblings_wake():
    lines = WaitingLines()
    first, sibling = family_of_waiters(lines, "a", "b")
    assert (lines.is_head(first), lines.is_head(sibling)) == (True, False)
    lines.step_aside(first, is_aside=True)
    assert lines.is_head(sibling)
    lines.slots_returned(grant_of("a", "parent"))
    assert (lines.is_head(first), lines.is_head(sibling)) == (True, False)


def test_the_next_caller_of_a_child_stands_before_siblings_that_came_later():
    lines = WaitingLines()
    first, second, sibling = family_of_waiters(lines, "a", "a", "b")
    lines.leave(first)
    assert (lines.is_head(second), lines.is_head(sibling)) == (True, False)
    lines.leave(second)
    assert lines.is_head(sibling)
    lines.leave(sibling)
    assert len(lines) == 0


class Waiter:
    """Counts how often it is woken. The event loop of its caller may be closed."""

    def __init__(self, *, is_closed=False):
        self.is_closed, self.woken = is_closed, 0

    def wake(self):
        self.woken += 1
        return not self.is_closed


def queue_of(lines, *callers, parent_key=None):
    """Let callers of one bucket each arrive; return their sleepers."""
    sleepers = []
    for number, waiter in enumerate(callers):
        sleeper = Sleeper((f"child-{number}" if parent_key else "user", "api"))
        sleeper.parent_key = parent_key
        lines.arrive(sleeper)
        lines.prepare(sleeper, lambda waiter=waiter: waiter)
        lines.enter_queue(sleeper)
        sleepers.append(sleeper)
    return sleepers


@pytest.mark.parametrize("parent_key", [None, ("parent", "api")])
def test_callers_of_closed_event_loops_are_passed_when_they_are_woken(parent_key):
    lines = WaitingLines()
    closed, alive = Waiter(is_closed=True), Waiter()
    *_, last = queue_of(lines, closed, closed, alive, parent_key=parent_key)
    leaving = Sleeper(("child-0" if parent_key else "user", "api"))
    leaving.parent_key = parent_key
    lines.leave(leaving)
    assert closed.woken == 2
    assert alive.woken > 0
    assert lines.is_head(last)


@pytest.mark.parametrize("parent_key", [None, ("parent", "api")])
def test_a_caller_that_does_not_act_is_passed_and_takes_its_place_again(parent_key):
    lines = WaitingLines()
    late, second, third = queue_of(lines, Waiter(), Waiter(), Waiter(), parent_key=parent_key)
    assert not lines.is_head(second)
    late.acts_by_s = 0.0
    assert (lines.is_head(third), lines.is_head(second)) == (False, True)
    assert second.waiter.woken > 0, "nobody else tells it that it has the turn"
    assert lines.is_head(late)
    assert not lines.is_head(second)
    for sleeper in (late, second, third):
        lines.leave(sleeper)
    assert len(lines) == 0


def test_thousands_of_callers_that_do_not_act_are_passed_at_once():
    lines = WaitingLines()
    sleepers = queue_of(lines, *[Waiter() for _ in range(5000)])
    for sleeper in sleepers[:-1]:
        sleeper.acts_by_s = 0.0
    assert lines.is_head(sleepers[-1])


def test_a_caller_that_rests_keeps_its_place_until_it_is_woken_in_vain():
    lines = WaitingLines()
    first, second = queue_of(lines, Waiter(), Waiter())
    first.rest(3600)
    lines.leave(Sleeper(("user", "api")))
    assert first.acts_by_s - monotonic() < 60
    assert not lines.is_head(second)


class Beat:
    """Counts the callers that end between two steps of another task."""

    def __init__(self):
        self.ended = self.most = 0

    async def run(self):
        while True:
            before = self.ended
            await asyncio.sleep(0)
            self.most = max(self.most, self.ended - before)


async def cancel_all(limit, timeout_s, callers):
    """Return how many of the callers ended at most in one step of the event loop."""
    async with Repository.open(url="memory://") as repo:
        limiter, beat = RateLimiter(repo), Beat()
        await repo.set_system_defaults([limit])

        async def call():
            was_served = False
            try:
                async with limiter.acquire("user", "api", {limit.name: 1}, timeout=timeout_s):
                    was_served = True
                    await asyncio.sleep(3600)
            finally:
                beat.ended += not was_served

        tasks = [asyncio.create_task(call()) for _ in range(callers)]
        for _ in range(5):
            await asyncio.sleep(0)
        beating = asyncio.create_task(beat.run())
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        beating.cancel()
        assert beat.ended > callers // 2
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        charging = repo.charging
        assert len(charging.slot_lines if limit.is_concurrent else charging.waiting_lines) == 0
        bucket = await repo.get_bucket("user", "api", limit.name)
        assert bucket.total_consumed_milli in (0, None)
        return beat.most


async def test_callers_that_are_cancelled_together_end_one_by_one():
    assert await cancel_all(Limit.custom("tokens", 1, 30, 1), 50, 1000) <= 2
    assert await cancel_all(Limit.concurrent("slots", 1), 50, 1000) <= 2


async def test_a_caller_that_is_cancelled_and_woken_at_once_is_cancelled():
    async with Repository.open(url="memory://") as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.concurrent("slots", 1)])

        async def call():
            async with limiter.acquire("user", "api", {}, timeout=50):
                pytest.fail("a cancelled caller went on")

        async with limiter.acquire("user", "api", {}):
            tasks = [asyncio.create_task(call()) for _ in range(5)]
            for _ in range(5):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert (await limiter.available("user", "api")) == {"slots": 1}
