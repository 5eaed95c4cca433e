"""The amounts that one acquire may take."""

from __future__ import annotations

import json
import logging
import math

import pytest

from zae_limiter.models.limit import MAX_TOKENS, Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)
CENTURY_S = 100 * 366 * 86_400


class AmountContract(Contract):
    """Acquires of a whole capacity, of too much, of nothing, and of several limits at once."""

    async def test_the_whole_capacity_can_be_taken_at_once(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=10)
        assert await world.level() == 0

    async def test_more_than_the_capacity_never_fits_and_says_so(self, world: World) -> None:
        await world.configure(RPM)
        refusal = await world.refusal(rpm=11)
        (status,) = refusal.violations
        assert refusal.retry_after_seconds == math.inf
        assert refusal.retry_after_header == "86400"
        assert status.retry_after_seconds == math.inf
        assert (status.available, status.requested, status.deficit) == (10, 11, 1)
        assert "never" in str(refusal)

    async def test_an_infinite_wait_is_null_in_strict_json(self, world: World) -> None:
        await world.configure(RPM)
        refusal = await world.refusal(rpm=11)
        answer = json.loads(json.dumps(refusal.as_dict(), allow_nan=False))
        assert answer["retry_after_seconds"] is None
        assert answer["limits"][0]["retry_after_seconds"] is None
        assert answer["limits"][0]["can_ever_fit"] is False

    async def test_a_refusal_is_strict_json_with_the_wait_in_seconds(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=10)
        answer = json.loads(json.dumps((await world.refusal(rpm=1)).as_dict(), allow_nan=False))
        assert answer["retry_after_seconds"] == 6
        assert [each["limit_name"] for each in answer["limits"]] == ["rpm", "tpm"]

    async def test_a_refused_acquire_leaves_a_debug_line(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=8)
        await world.refusal(rpm=3)
        assert caplog.messages == []
        caplog.set_level(logging.DEBUG, "zae_limiter")
        await world.take(rpm=1)
        await world.refusal(rpm=3, tpm=1)
        lines = [line for line in caplog.messages if "rejected" in line]
        (line,) = lines
        assert line.startswith("'user-1' on 'api' was rejected: rpm of 'user-1' has 1 of 3 ")
        assert line.endswith(" requested; retry after 12.000 s")

    async def test_a_refused_acquire_takes_nothing_from_any_limit(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=1, tpm=100)
        await world.refusal(rpm=1, tpm=901)
        await world.refusal(rpm=10, tpm=1)
        assert (await world.level("rpm"), await world.level("tpm")) == (9000, 900_000)

    async def test_several_limits_are_taken_together(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=3, tpm=500)
        assert (await world.level("rpm"), await world.level("tpm")) == (7000, 500_000)

    async def test_a_refusal_lists_every_limit_in_force_also_those_not_asked_for(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        refusal = await world.refusal(tpm=1001)
        assert [each.limit_name for each in refusal.statuses] == ["rpm", "tpm"]
        assert [each.limit_name for each in refusal.violations] == ["tpm"]
        assert [each.limit_name for each in refusal.passed] == ["rpm"]
        assert refusal.primary_violation == refusal.violations[0]
        assert all((each.entity_id, each.resource) == (USER, API) for each in refusal.statuses)

    async def test_the_primary_violation_is_the_one_that_takes_longest(self, world: World) -> None:
        await world.configure(RPM, Limit.per_day("rpd", 10))
        await world.take(rpm=10, rpd=10)
        refusal = await world.refusal(rpm=1, rpd=1)
        assert refusal.primary_violation is not None
        assert refusal.primary_violation.limit_name == "rpd"
        assert refusal.retry_after_seconds == 8640
        assert refusal.retry_after_header == "8640"

    async def test_an_acquire_of_nothing_is_granted_and_takes_nothing(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=10)
        await world.take(rpm=0)
        await world.take()
        assert await world.level() == 0

    async def test_limits_of_different_resources_and_entities_are_separate(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.take("a", "gpt-4", rpm=10)
        await world.take("a", "gpt-3", rpm=10)
        await world.take("b", "gpt-4", rpm=10)
        await world.refusal("a", "gpt-4", rpm=1)

    @for_each(
        "limit",
        [
            Limit.custom("rpm", MAX_TOKENS, 1, 3600),
            Limit.custom("rpm", MAX_TOKENS, MAX_TOKENS, 1),
            Limit.custom("rpm", 1, 1, CENTURY_S),
            Limit.custom("rpm", MAX_TOKENS, 1, CENTURY_S),
        ],
    )
    async def test_every_limit_that_is_valid_can_be_used(self, world: World, limit: Limit) -> None:
        await world.configure(limit)
        user = f"user of {limit}"
        async with world.acquire(user, rpm=1) as lease:
            await lease.adjust(rpm=MAX_TOKENS)
        off = await world.level("rpm", user) - 1000 * (limit.capacity - 1 - MAX_TOKENS)
        assert abs(off) <= world.spec.precision_milli
        await world.take(f"other {user}", limits=[limit], rpm=limit.capacity)

    async def test_the_largest_limits_stay_exact(self, world: World) -> None:
        huge = Limit.custom("tpm", MAX_TOKENS, MAX_TOKENS, 1)
        await world.configure(huge)
        await world.take(tpm=MAX_TOKENS)
        await world.refusal(tpm=1)
        world.clock.advance(ms=1)
        assert await world.level("tpm") == MAX_TOKENS
        world.clock.advance(days=365 * 70)
        await world.take(tpm=MAX_TOKENS - 1)
        await world.take(tpm=1)
        await world.refusal(tpm=1)
