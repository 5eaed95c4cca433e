"""``settle`` and ``on_error``: the cost of a block, however it ends."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from zae_limiter.exceptions import LeaseExpiredError, RateLimitExceeded, ValidationError
from zae_limiter.models.config import OnError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

CAPACITY = 1000
RPM, TPM = Limit.per_minute("rpm", CAPACITY), Limit.per_minute("tpm", CAPACITY)
CHILD, PARENT = "child", "parent"
ENDS: list[type[BaseException] | None] = [None, Failure, KeyboardInterrupt, GeneratorExit]
POLICIES: list[OnError] = ["refund", "keep"]


class LeaseModel:
    """A second, independent account of one limit of a lease, with its three numbers."""

    def __init__(self, taken: int, *, keep: bool) -> None:
        self.written = self.if_successful = taken
        self.keep = keep
        self.if_failed = taken if keep else 0

    def change(self, operation: str, amount: int) -> None:
        if operation == "consume":
            self.written += amount
            self.if_successful += amount
        elif operation == "release":
            self.written -= amount
            self.if_successful = max(0, self.if_successful - amount)
        elif operation == "adjust":
            self.if_successful += amount
        else:
            self.if_successful = self.if_failed = amount
            if operation == "settle now":
                self.written = amount
        if self.keep:
            self.if_failed = self.if_successful
        else:
            self.if_failed = min(self.if_failed, max(0, self.if_successful))


class SettlingContract(Contract):
    """Amounts that are settled, kept and refunded."""

    @pytest.fixture
    async def settling(self, world: World) -> World:
        await world.configure(RPM, TPM)
        return world

    # --- settle

    async def test_what_was_settled_is_what_the_block_costs(self, settling: World) -> None:
        async with settling.acquire(rpm=1, tpm=500) as lease:
            await lease.settle(tpm=812)
            assert lease.consumed == {"rpm": 1, "tpm": 812}
            assert await _spent(settling) == (1, 500)  # written at the end
        assert await _spent(settling) == (1, 812)

    async def test_the_last_settled_amount_counts(self, settling: World) -> None:
        async with settling.acquire(rpm=1, tpm=500) as lease:
            for cost in (100, 900, 300):
                await lease.settle(tpm=cost)
        assert await _spent(settling) == (1, 300)

    @for_each("cost", [0, 300, 500, 1812])
    async def test_what_is_settled_now_is_written_at_once(self, settling: World, cost: int) -> None:
        user = f"user-{cost}"
        async with settling.acquire(user, rpm=1, tpm=500) as lease:
            await lease.settle(tpm=cost, now=True)
            assert await _spent(settling, user) == (1, cost)
        assert await _spent(settling, user) == (1, cost)

    @for_each("now", [False, True])
    @for_each("error", [Failure, KeyboardInterrupt, GeneratorExit])
    async def test_a_settled_amount_stays_however_the_block_fails(
        self, settling: World, error: type[BaseException], now: bool
    ) -> None:
        user = f"{error.__name__}-{now}"
        with failing(error):
            async with settling.acquire(user, rpm=1, tpm=500) as lease:
                await lease.settle(tpm=812, now=now)
                raise error
        assert await _spent(settling, user) == (0, 812)

    async def test_a_limit_that_was_not_charged_can_be_settled(self, settling: World) -> None:
        with failing():
            async with settling.acquire(rpm=1) as lease:
                await lease.settle(tpm=30)
                raise Failure
        assert await _spent(settling) == (0, 30)

    async def test_an_answer_that_cost_more_than_there_is_leaves_a_debt(
        self, settling: World
    ) -> None:
        async with settling.acquire(tpm=1) as lease:
            await lease.settle(tpm=CAPACITY + 200)
        assert await settling.level("tpm") == -200_000
        await settling.refusal(rpm=1)

    async def test_more_consumed_after_a_settlement_is_refunded_alone(
        self, settling: World
    ) -> None:
        with failing():
            async with settling.acquire(tpm=10) as lease:
                await lease.settle(tpm=600)
                await lease.consume(tpm=200)
                assert lease.consumed == {"tpm": 800}
                raise Failure
        assert await settling.spent("tpm") == 600

    async def test_a_failure_never_costs_more_than_a_success(self, settling: World) -> None:
        with failing():
            async with settling.acquire(tpm=10) as lease:
                await lease.settle(tpm=800)
                await lease.adjust(tpm=-100)
                raise Failure
        assert await settling.spent("tpm") == 700

    async def test_a_release_lowers_what_was_settled(self, settling: World) -> None:
        with failing():
            async with settling.acquire(tpm=10) as lease:
                await lease.settle(tpm=400, now=True)
                await lease.release(tpm=100)
                raise Failure
        assert await settling.spent("tpm") == 300

    async def test_what_an_adjustment_took_from_a_settlement_does_not_come_back(
        self, settling: World
    ) -> None:
        with failing():
            async with settling.acquire(tpm=10) as lease:
                await lease.settle(tpm=400)
                await lease.adjust(tpm=-300)
                await lease.adjust(tpm=300)
                assert lease.consumed == {"tpm": 400}
                raise Failure
        assert await settling.spent("tpm") == 100

    async def test_both_buckets_of_a_cascade_are_settled(self, settling: World) -> None:
        await settling.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        for now in (False, True):
            with failing():
                async with settling.acquire(CHILD, rpm=1, tpm=500) as lease:
                    await lease.settle(tpm=30, now=now)
                    raise Failure
        for entity_id in (CHILD, PARENT):
            assert await settling.spent("tpm", entity_id) == 60
            assert await settling.spent("rpm", entity_id) == 0

    async def test_a_parent_pays_only_for_the_charges_that_it_took(self, settling: World) -> None:
        await settling.repo.create_entity(CHILD)
        async with settling.acquire(CHILD, tpm=50) as lease:
            await settling.repo.set_parent(CHILD, PARENT)
            await lease.consume(tpm=30)  # from both
            await lease.settle(tpm=60, now=True)  # 20 of those come back, to both
            assert await settling.spent("tpm", PARENT) == 10
            await lease.settle(tpm=90)  # the debt is the first charge's, the child's alone
        assert await settling.spent("tpm", CHILD) == 90
        assert await settling.spent("tpm", PARENT) == 10

    # --- on_error

    @for_each("error", [Failure, KeyboardInterrupt, GeneratorExit])
    async def test_what_is_kept_on_an_error_costs_as_much_as_a_success(
        self, settling: World, error: type[BaseException]
    ) -> None:
        with failing(error):
            async with _acquire(settling, "keep", error.__name__, rpm=1, tpm=500) as lease:
                await lease.adjust(tpm=100)
                await lease.consume(rpm=2)
                await lease.release(tpm=50)
                raise error
        assert await _spent(settling, error.__name__) == (3, 550)

    @pytest.mark.parametrize(("on_error", "cost"), [("refund", 800), ("keep", 1000)])
    async def test_what_follows_a_settlement_is_up_to_on_error(
        self, settling: World, on_error: OnError, cost: int
    ) -> None:
        with failing():
            async with _acquire(settling, on_error, tpm=10) as lease:
                await lease.settle(tpm=800)
                await lease.consume(tpm=200)
                raise Failure
        assert await settling.spent("tpm") == cost

    async def test_another_word_for_on_error_is_refused(self, settling: World) -> None:
        for other in ("", "Keep", None, True, ["keep"]):
            with pytest.raises(ValidationError) as caught:
                settling.limiter.acquire(USER, API, {"rpm": 1}, on_error=other)  # type: ignore[arg-type]
            assert caught.value.field == "on_error"

    # --- input

    async def test_settle_takes_a_mapping_for_a_limit_of_any_name(self, world: World) -> None:
        await world.configure(Limit.per_minute("now", 10), Limit.per_minute("self", 10))
        async with world.limiter.acquire(USER, API, {"now": 1}) as lease:
            await lease.settle({"now": 5}, self=2)
        assert (await world.spent("now"), await world.spent("self")) == (5, 2)

    @for_each("amount", [-1, 1.0, True, "1", None])
    async def test_a_cost_is_a_whole_number_and_not_negative(
        self, settling: World, amount: Any
    ) -> None:
        user = f"user of {amount!r}"
        async with settling.acquire(user, rpm=1) as lease:
            for now in (False, True):
                with pytest.raises(ValidationError) as caught:
                    await lease.settle(rpm=amount, now=now)
                assert caught.value.field == "settle.rpm"
        assert await _spent(settling, user) == (1, 0)

    async def test_settling_an_unknown_limit_changes_nothing_and_names_the_known(
        self, settling: World
    ) -> None:
        async with settling.acquire(rpm=1) as lease:
            for now in (False, True):
                with pytest.raises(ValidationError, match="rpm, tpm") as caught:
                    await lease.settle(rpm=5, tokens=1, now=now)
                assert caught.value.field == "settle.tokens"
        assert await _spent(settling) == (1, 0)

    async def test_nothing_can_be_settled_after_the_block(self, settling: World) -> None:
        async with settling.acquire(rpm=1) as lease:
            pass
        for now in (False, True):
            with pytest.raises(LeaseExpiredError, match="settle"):
                await lease.settle(rpm=5, now=now)
        assert await _spent(settling) == (1, 0)

    # --- all together

    @pytest.mark.parametrize("entity_id", [USER, CHILD])
    @pytest.mark.parametrize("on_error", POLICIES)
    async def test_random_histories_cost_what_the_three_numbers_say(
        self, settling: World, on_error: OnError, entity_id: str
    ) -> None:
        await settling.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        chance = random.Random(f"{on_error} {entity_id}")
        spent = 0
        for end in ENDS * 4:
            taken = chance.randrange(30)
            model, steps = LeaseModel(taken, keep=on_error == "keep"), []
            with suppress(*[each for each in ENDS if each is not None]):
                async with _acquire(settling, on_error, entity_id, tpm=taken) as lease:
                    for _ in range(chance.randrange(5)):
                        steps.append(await _random_step(lease, model, chance))
                        assert lease.consumed == {"tpm": model.if_successful}, steps
                        found = await settling.spent("tpm", entity_id)
                        assert found == spent + model.written, steps
                    if end is not None:
                        raise end
            spent += model.if_successful if end is None else model.if_failed
            assert await settling.spent("tpm", entity_id) == spent, (steps, end)
            if entity_id == CHILD:
                assert await settling.spent("tpm", PARENT) == spent, (steps, end)


async def _random_step(lease: Any, model: LeaseModel, chance: random.Random) -> tuple[str, int]:
    """Apply a random operation to a lease and its model; a rejected one changes neither."""
    operation = chance.choice(["adjust", "consume", "release", "settle", "settle now"])
    amount = chance.randrange(60)
    if operation == "adjust":
        amount = max(amount - 30, -model.if_successful)
        await lease.adjust(tpm=amount)
    elif operation == "consume":
        try:
            await lease.consume(tpm=amount)
        except RateLimitExceeded:
            return "refused", amount
    elif operation == "release":
        amount = min(amount, model.written)
        await lease.release(tpm=amount)
    else:
        await lease.settle(tpm=amount, now=operation == "settle now")
    model.change(operation, amount)
    return operation, amount


def _acquire(world: World, on_error: OnError, entity_id: str = USER, **consume: int) -> Any:
    return world.limiter.acquire(entity_id, API, consume, on_error=on_error)


async def _spent(world: World, entity_id: str = USER) -> tuple[int, int]:
    return await world.spent("rpm", entity_id), await world.spent("tpm", entity_id)
