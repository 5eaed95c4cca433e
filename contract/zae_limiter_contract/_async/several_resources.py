"""One acquire over several resources: all of them are charged, or none."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import inf
from typing import Any

import pytest

from zae_limiter import llm
from zae_limiter._async.acquire import Acquire
from zae_limiter._async.lease import Lease
from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import (
    InvalidIdentifierError,
    InvalidNameError,
    LeaseExpiredError,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter_contract._async.base import Contract, Outage
from zae_limiter_contract._async.observing import Recorder
from zae_limiter_contract._async.waiting import until
from zae_limiter_contract._async.world import (
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)
from zae_limiter_contract.together import agather

# The order of keys: ALL, IMAGES, MODEL. So MODEL, which callers name first, is charged last.
MODEL, ALL, IMAGES = "gpt-4", "all-models", "images"
RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)
USD = Limit.budget("usd", "1.00", per="day", hold_ttl=60)
SLOTS = Limit.concurrent("parallel", 2)
EVENING = datetime(2026, 3, 10, 23, 59, 54, tzinfo=UTC)
KEY, OTHER_KEY, TEAM = "key-1", "key-2", "team"
CALLERS = 50

Amounts = Mapping[str, Any]
Also = Mapping[Any, Amounts]


def several(
    world: World,
    consume: Amounts,
    also: Mapping[Any, Amounts],
    entity_id: str = USER,
    **options: Any,
) -> Acquire:
    return world.limiter.acquire(entity_id, MODEL, consume, also=also, **options)


async def granted(
    world: World, consume: Amounts, also: Mapping[Any, Amounts], entity_id: str = USER
) -> bool:
    """Tell whether an acquire over several resources is granted."""
    try:
        async with several(world, consume, also, entity_id):
            return True
    except RateLimitExceeded:
        return False


async def refusal(
    world: World,
    consume: Amounts,
    also: Mapping[Any, Amounts],
    entity_id: str = USER,
    **options: Any,
) -> RateLimitExceeded:
    """Return the error of an acquire that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        async with several(world, consume, also, entity_id, **options):
            pass
    return caught.value


async def budget(world: World) -> LimitStatus:
    answer = await world.limiter.check_availability(USER, ALL)
    return next(each for each in answer.statuses if each.limit_name == "usd")


class _SeveralResources(Contract):
    @pytest.fixture
    async def shop(self, world: World) -> World:
        """10 requests a minute for one model, 1,000 tokens and a dollar a day for all models."""
        world.clock.set(int(EVENING.timestamp() * 1000))
        await world.repo.set_resource_defaults(MODEL, [RPM])
        await world.repo.set_resource_defaults(ALL, [USD, TPM])
        await world.repo.set_resource_defaults(IMAGES, [RPM, SLOTS])
        return world


class SeveralResourcesContract(_SeveralResources):
    """Each resource is charged and settled by itself; the answer is about all of them."""

    # --- all or none

    async def test_all_resources_are_charged(self, shop: World) -> None:
        also: Also = {ALL: {"usd": "0.25", "tpm": 100}, IMAGES: {"rpm": 2}}
        async with several(shop, {"rpm": 3}, also) as lease:
            assert lease.consumed == {"rpm": 3}
            assert lease.resource(ALL).consumed == {"usd": Decimal("0.25"), "tpm": 100}
        assert await shop.tokens("rpm", USER, MODEL) == 7
        assert await shop.tokens("tpm", USER, ALL) == 900
        assert await shop.tokens("rpm", USER, IMAGES) == 8
        assert (await budget(shop)).available == Decimal("0.75")

    async def test_a_resource_that_refuses_leaves_the_others_untouched(self, shop: World) -> None:
        await refusal(shop, {"rpm": 11}, {ALL: {"usd": "0.50", "tpm": 7}, IMAGES: {"rpm": 1}})
        await refusal(shop, {"rpm": 1}, {ALL: {"usd": "1.01", "tpm": 7}, IMAGES: {"rpm": 1}})
        await refusal(shop, {"rpm": 1}, {ALL: {"usd": "0.50", "tpm": 7}, IMAGES: {"rpm": 11}})
        shown = await budget(shop)
        assert (shown.available, shown.used, shown.held) == (Decimal(1), Decimal(0), Decimal(0))
        for name, resource, level in [("rpm", MODEL, 10), ("rpm", IMAGES, 10), ("tpm", ALL, 1000)]:
            assert (await shop.limiter.available(USER, resource))[name] == level
            assert await shop.spent(name, USER, resource) == 0
        assert (await shop.limiter.available(USER, IMAGES))["parallel"] == 2

    async def test_a_refusal_lists_all_resources_in_the_order_of_their_names(
        self, shop: World
    ) -> None:
        await shop.take(USER, MODEL, rpm=10)
        await shop.take(USER, ALL, tpm=1000)
        error = await refusal(shop, {"rpm": 1}, {IMAGES: {"rpm": 1}, ALL: {"tpm": 500}})
        listed = [(each.resource, each.limit_name, each.exceeded) for each in error.statuses]
        assert listed == [
            (MODEL, "rpm", True),
            (IMAGES, "rpm", False),
            (IMAGES, "parallel", False),
            (ALL, "usd", False),
            (ALL, "tpm", True),
        ]
        assert error.retry_after_seconds == 30
        used = [each.used for each in error.statuses if each.limit_name == "usd"]
        assert used == [Decimal(0)]

    async def test_a_refund_of_an_earlier_charge_shows_in_the_refusal(self, shop: World) -> None:
        async with several(shop, {}, {ALL: {"usd": "0.40", "tpm": 1}}):
            error = await refusal(shop, {"rpm": 11}, {ALL: {"usd": "0.50", "tpm": 99}})
        listed = {each.limit_name: each for each in error.statuses if each.resource == ALL}
        assert listed["tpm"].available == 999
        assert listed["usd"].available == Decimal("0.60")
        assert (listed["usd"].used, listed["usd"].held) == (Decimal(0), Decimal("0.40"))

    async def test_a_debt_of_a_resource_without_amounts_refuses(self, shop: World) -> None:
        await shop.owe(USER, ALL, tpm=1100)
        error = await refusal(shop, {"rpm": 1}, {ALL: {}})
        assert [(each.resource, each.limit_name) for each in error.violations] == [(ALL, "tpm")]
        assert error.retry_after_seconds == 6

    async def test_availability_covers_all_resources(self, shop: World) -> None:
        check = partial(shop.limiter.check_availability, USER, MODEL, {"rpm": 1})
        assert (await check(also={ALL: {"tpm": 1000}})).available
        await shop.take(USER, ALL, tpm=500)
        answer = await check(also={ALL: {"tpm": 600}})
        assert (answer.available, answer.retry_after_seconds) == (False, 6)
        assert [each.resource for each in answer.statuses] == [MODEL, ALL, ALL]
        with pytest.raises(ValidationError, match=r"needed\.tpm"):
            await shop.limiter.check_availability(USER, MODEL, {"tpm": 1}, also={ALL: {}})

    async def test_a_top_up_that_ends_before_another_resource_admits_is_no_help(
        self, shop: World
    ) -> None:
        await shop.repo.set_resource_defaults(
            "hourly", [Limit.quota("tokens", 10, per="hour", hold_ttl=None)]
        )
        await shop.take(USER, "hourly", tokens=1)
        await shop.repo.top_up(USER, "hourly", {"tokens": 6})
        await several(shop, {}, {ALL: {"usd": 1}}).__aenter__()
        with pytest.raises(RateLimitExceeded) as caught:
            await several(shop, {}, {ALL: {"usd": 1}, "hourly": {"tokens": 15}}).__aenter__()
        refused = caught.value
        assert refused.retry_after_seconds == inf
        assert {each.limit_name for each in refused.violations} == {"usd", "tokens"}
        async with several(shop, {}, {"hourly": {"tokens": 15}}):
            pass

    # --- settlement

    async def test_each_resource_has_its_own_cost(self, shop: World) -> None:
        also: Also = {ALL: {"usd": "0.50", "tpm": 100}, IMAGES: {"rpm": 3}}
        async with several(shop, {"rpm": 3}, also) as lease:
            everything, images = lease.resource(ALL), lease.resource((USER, IMAGES))
            assert lease.resource(MODEL) is lease
            await lease.settle(rpm=1)
            await everything.settle(usd="0.125")
            await everything.adjust(tpm=-40)
            await everything.consume(tpm=5)
            await images.release(rpm=2)
            assert await shop.tokens("rpm", USER, IMAGES) == 9
            assert everything.consumed == {"usd": Decimal("0.125"), "tpm": 65}
            assert everything.remaining == {"usd": Decimal("0.875"), "tpm": 935}
            assert (lease.consumed, lease.remaining) == ({"rpm": 1}, {"rpm": 9})
        assert await shop.tokens("rpm", USER, MODEL) == 9
        assert await shop.tokens("tpm", USER, ALL) == 935
        assert await shop.tokens("rpm", USER, IMAGES) == 9
        shown = await budget(shop)
        assert (shown.used, shown.held) == (Decimal("0.125"), Decimal(0))

    async def test_each_resource_gives_back_no_more_than_it_holds(self, shop: World) -> None:
        async with several(shop, {"rpm": 3}, {ALL: {"usd": "0.50", "tpm": 100}}) as lease:
            everything = lease.resource(ALL)
            with pytest.raises(ValidationError) as caught:
                await everything.adjust(usd="-0.75")
            assert caught.value.field == "adjust.usd"
            assert caught.value.reason == "is more than this lease holds (0.50)"
            with pytest.raises(ValidationError):
                await lease.adjust(rpm=-4)
            await everything.adjust(usd="-0.50", tpm=-100)
        shown = await budget(shop)
        assert (shown.available, shown.used, shown.held) == (1, 0, 0)
        assert await shop.tokens("tpm", USER, ALL) == 1000

    async def test_a_failed_block_keeps_the_settled_costs_of_each_resource(
        self, shop: World
    ) -> None:
        with failing():
            async with several(shop, {"rpm": 3}, {ALL: {"usd": "0.50", "tpm": 100}}) as lease:
                await lease.resource(ALL).settle(usd="0.20")
                await lease.adjust(rpm=5)
                raise Failure
        assert await shop.tokens("rpm", USER, MODEL) == 10
        assert await shop.tokens("tpm", USER, ALL) == 1000
        shown = await budget(shop)
        assert (shown.used, shown.held) == (Decimal("0.20"), Decimal(0))

    async def test_a_failed_block_may_keep_everything(self, shop: World) -> None:
        with failing():
            async with several(shop, {"rpm": 3}, {ALL: {"tpm": 100}}, on_error="keep") as lease:
                await lease.resource(ALL).adjust(tpm=50)
                raise Failure
        assert await shop.tokens("rpm", USER, MODEL) == 7
        assert await shop.tokens("tpm", USER, ALL) == 850

    async def test_a_late_refund_of_a_further_resource_stays_in_its_window(
        self, shop: World
    ) -> None:
        with failing():
            async with several(shop, {"rpm": 1}, {ALL: {"usd": "0.90"}}):
                shop.clock.advance(seconds=7)
                async with shop.limiter.acquire(USER, ALL, {"usd": "0.60"}):
                    pass
                raise Failure
        shown = await budget(shop)
        assert (shown.available, shown.held) == (Decimal("0.40"), Decimal(0))

    async def test_the_leases_of_all_resources_end_with_the_block(self, shop: World) -> None:
        async with several(shop, {"rpm": 1}, {ALL: {"tpm": 1}}) as lease:
            everything = lease.resource(ALL)
        with pytest.raises(LeaseExpiredError):
            await everything.settle(tpm=5)
        with pytest.raises(LeaseExpiredError):
            await everything.consume(tpm=5)
        assert await shop.tokens("tpm", USER, ALL) == 999

    async def test_statuses_and_headers_cover_all_resources(self, shop: World) -> None:
        async with several(shop, {"rpm": 4}, {IMAGES: {"rpm": 7}, ALL: {"tpm": 1}}) as lease:
            listed = [(each.resource, each.limit_name, each.available) for each in lease.statuses]
            assert listed == [
                (MODEL, "rpm", 6),
                (IMAGES, "rpm", 3),
                (IMAGES, "parallel", 1),
                (ALL, "usd", Decimal(1)),
                (ALL, "tpm", 999),
            ]
            assert lease.headers("x-ratelimit")["X-RateLimit-Remaining"] == "3"
            assert '"tpm";r=999' in lease.headers()["RateLimit"]
            assert [each.resource for each in lease.resource(ALL).statuses] == [ALL, ALL]

    async def test_a_resource_that_the_lease_does_not_have_is_a_mistake(self, shop: World) -> None:
        async with several(shop, {"rpm": 1}, {(OTHER_KEY, ALL): {}}) as lease:
            for unknown in (ALL, IMAGES, (USER, ALL)):
                with pytest.raises(ValidationError, match="is not a resource of this lease"):
                    lease.resource(unknown)
            with pytest.raises(ValidationError, match="must be a resource, or a pair"):
                lease.resource(3)  # type: ignore[arg-type]
        async with shop.acquire(USER, MODEL, rpm=1) as lease:
            assert lease.resource(MODEL) is lease
            with pytest.raises(ValidationError, match="its resources are 'gpt-4'"):
                lease.resource(ALL)

    async def test_an_llm_call_reserves_in_further_resources(self, shop: World) -> None:
        await shop.repo.set_resource_defaults(MODEL, [RPM, TPM])
        also: Also = {ALL: {"usd": "0.50"}}
        async with llm.reserve(shop.limiter, USER, MODEL, estimate=100, also=also) as call:
            call.record_usage(llm.Usage(input_tokens=20, output_tokens=10))
            await call.lease.resource(ALL).settle(usd="0.03")
        assert await shop.tokens("tpm", USER, MODEL) == 970
        assert (await budget(shop)).used == Decimal("0.03")

    # --- equal buckets and parents

    async def test_amounts_of_equal_buckets_are_added(self, shop: World) -> None:
        also: Also = {MODEL: {"rpm": 2}, ALL: {"tpm": 3}, (USER, ALL): {"tpm": 4, "usd": "0.01"}}
        async with several(shop, {"rpm": 3}, also) as lease:
            assert lease.consumed == {"rpm": 5}
            assert lease.resource(ALL).consumed == {"tpm": 7, "usd": Decimal("0.01")}
        assert await shop.tokens("rpm", USER, MODEL) == 5
        assert await shop.tokens("tpm", USER, ALL) == 993
        error = await refusal(shop, {"rpm": 5}, {(USER, MODEL): {"rpm": 6}})
        assert [(each.requested, each.exceeded) for each in error.statuses] == [(11, True)]

    async def test_each_resource_cascades_to_the_parent(self, shop: World) -> None:
        await shop.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        async with several(shop, {"rpm": 2}, {ALL: {"tpm": 30, "usd": "0.10"}}, KEY) as lease:
            await lease.resource(ALL).settle(usd="0.05")
        for entity_id in (KEY, TEAM):
            assert await shop.tokens("rpm", entity_id, MODEL) == 8
            assert await shop.tokens("tpm", entity_id, ALL) == 970
            answer = await shop.limiter.check_availability(entity_id, ALL)
            assert answer.statuses[0].used == Decimal("0.05")
        await shop.take(TEAM, ALL, tpm=970)
        await refusal(shop, {"rpm": 2}, {ALL: {"tpm": 1}}, KEY)
        assert await shop.tokens("rpm", TEAM, MODEL) == 8
        assert await shop.tokens("tpm", KEY, ALL) == 970

    async def test_children_of_one_parent_charge_its_bucket_once(self, shop: World) -> None:
        for key in (KEY, OTHER_KEY):
            await shop.repo.create_entity(key, parent_id=TEAM, cascade=True)
        await shop.repo.set_resource_defaults(MODEL, [RPM, USD, SLOTS])
        also: Also = {(OTHER_KEY, MODEL): {"rpm": 4, "usd": "0.30"}}
        async with several(shop, {"rpm": 5, "usd": "0.20"}, also, KEY) as lease:
            assert await shop.tokens("rpm", TEAM, MODEL) == 1
            answer = await shop.limiter.check_availability(TEAM, MODEL)
            assert [each.held for each in answer.statuses] == [None, Decimal("0.50"), None]
            assert answer.statuses[2].available == 1  # one call is in flight
            await lease.settle(rpm=1, usd="0.01")
            await lease.resource((OTHER_KEY, MODEL)).settle(rpm=2, usd="0.02")
        assert await shop.tokens("rpm", TEAM, MODEL) == 7
        answer = await shop.limiter.check_availability(TEAM, MODEL)
        assert (answer.statuses[1].used, answer.statuses[1].held) == (Decimal("0.03"), Decimal(0))
        assert answer.statuses[2].available == 2
        assert not await granted(shop, {"rpm": 5}, {(OTHER_KEY, MODEL): {"rpm": 3}}, KEY)
        assert await granted(shop, {"rpm": 4}, {(OTHER_KEY, MODEL): {"rpm": 3}}, KEY)

    async def test_usage_counts_each_token_of_a_child_and_its_parent_once(
        self, shop: World
    ) -> None:
        require_usage_history(shop.spec)
        await shop.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        also: Also = {(TEAM, MODEL): {"rpm": 3}}
        async with several(shop, {"rpm": 2}, also, KEY) as lease:
            await lease.resource((TEAM, MODEL)).settle(rpm=1)
        # The bucket of the team is charged before that of a stranger, and gets everything back.
        await refusal(shop, {"rpm": 2}, {**also, ("zoe", ALL): {"tpm": 1001}}, KEY)
        shop.clock.advance(hours=1)
        team = await shop.repo.get_usage_summary(TEAM, MODEL)
        assert (team.total["rpm"], team.through_children["rpm"]) == (3, 2)
        assert (await shop.repo.get_usage_summary(resource=MODEL)).total["rpm"] == 3

    async def test_usage_under_bypass_counts_the_part_of_a_child_once(self, shop: World) -> None:
        require_usage_history(shop.spec)
        await shop.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await shop.repo.set_mode(MODEL, mode="bypass")
        async with several(shop, {"rpm": 2}, {(TEAM, MODEL): {"rpm": 3}}, KEY):
            pass
        shop.clock.advance(hours=1)
        team = await shop.repo.get_usage_summary(TEAM, MODEL)
        assert (team.total["rpm"], team.through_children["rpm"]) == (5, 2)
        assert (await shop.repo.get_usage_summary(resource=MODEL)).total["rpm"] == 5

    # --- limits, slots, modes

    async def test_limits_of_the_call_are_those_of_the_first_resource(self, shop: World) -> None:
        own = [Limit.per_minute("rpm", 100)]
        async with several(shop, {"rpm": 50}, {IMAGES: {"rpm": 10}}, limits=own):
            pass
        error = await refusal(shop, {"rpm": 50}, {IMAGES: {"rpm": 1}}, limits=own)
        assert [each.resource for each in error.violations] == [IMAGES]
        with pytest.raises(ValidationError, match="no limits are stored"):
            async with several(shop, {"rpm": 1}, {"other": {"rpm": 1}}, limits=own):
                pass

    async def test_slots_of_a_further_resource_are_held_by_the_block(self, shop: World) -> None:
        async with several(shop, {"rpm": 1}, {IMAGES: {}}) as lease:
            assert not lease.lost
            async with several(shop, {"rpm": 1}, {IMAGES: {}}):
                error = await refusal(shop, {"rpm": 1}, {IMAGES: {}})
                assert [each.limit_name for each in error.violations] == ["parallel"]
            with pytest.raises(ValidationError, match="has slots"):
                await lease.resource(IMAGES).settle(parallel=0)
            assert await granted(shop, {"rpm": 1}, {IMAGES: {"parallel": 1}})
        async with several(shop, {}, {IMAGES: {"parallel": 2}}):
            pass
        assert await shop.tokens("rpm", USER, MODEL) == 7

    async def test_a_call_that_dies_returns_its_holds_and_slots(self, shop: World) -> None:
        dead = several(shop, {"rpm": 5}, {ALL: {"usd": "0.90"}, IMAGES: {"parallel": 2}})
        await dead.__aenter__()
        assert (await budget(shop)).held == Decimal("0.90")
        del dead  # nothing renews its holds any more
        shop.clock.advance(hours=24)
        async with several(shop, {"rpm": 10}, {ALL: {"usd": "1.00"}, IMAGES: {"parallel": 2}}):
            pass

    async def test_a_shadowed_call_counts_once_over_all_resources(self, shop: World) -> None:
        require_usage_history(shop.spec)
        async with several(shop, {"rpm": 1}, {ALL: {"tpm": 1001}}, mode="shadow") as lease:
            assert lease.shadowed
        await shop.repo.set_mode(ALL, mode="shadow")
        recorder = Recorder()
        limiter = RateLimiter(shop.repo, hooks=recorder)
        async with limiter.acquire(USER, MODEL, {"rpm": 1}, also={ALL: {"tpm": 1001}}) as lease:
            assert (lease.shadowed, lease.resource(ALL).shadowed) == (True, True)
            assert recorder.names == ["on_acquire", "on_shadow"]
        async with several(shop, {"rpm": 1}, {IMAGES: {}}) as lease:
            assert (lease.shadowed, lease.resource(IMAGES).shadowed) == (False, False)
        other = await shop.open()
        await shop.repo.close()
        hours, _ = await other.get_usage_snapshots(USER, window_type="hourly")
        counted = {each.resource: (each.shadowed, each.rejected) for each in hours}
        assert counted == {MODEL: (2, 0), ALL: (0, 0), IMAGES: (0, 0)}

    async def test_shadow_mode_lets_all_resources_through_uncharged(self, shop: World) -> None:
        also: Also = {ALL: {"tpm": 1001}}
        async with several(shop, {"rpm": 1}, also, mode="shadow") as lease:
            assert (lease.shadowed, lease.consumed) == (True, {})
            everything = lease.resource(ALL)
            assert everything.consumed == {}
            await everything.settle(tpm=5)
            exceeded = [each.resource for each in lease.statuses if each.exceeded]
            assert exceeded == [ALL]
        assert (await shop.limiter.available(USER, MODEL))["rpm"] == 10
        assert (await shop.limiter.available(USER, ALL))["tpm"] == 1000

    async def test_hooks_see_all_resources(self, shop: World) -> None:
        hooks = Recorder()
        limiter = RateLimiter(shop.repo, hooks=hooks)
        also: Also = {ALL: {"tpm": 10}, (OTHER_KEY, IMAGES): {"rpm": 1}}
        async with limiter.acquire(USER, MODEL, {"rpm": 2}, also=also) as lease:
            await lease.resource(ALL).settle(tpm=4)
        with pytest.raises(RateLimitExceeded):
            async with limiter.acquire(USER, MODEL, {"rpm": 2}, also={ALL: {"tpm": 1000}}):
                pass
        assert hooks.names == ["on_acquire", *["on_settle"] * 3, "on_reject"]
        (_, acquired), *settled, (_, rejected) = hooks.events
        assert (acquired.entity_id, acquired.resource, acquired.consume) == (
            USER,
            MODEL,
            {"rpm": 2},
        )
        assert acquired.also == {(USER, ALL): {"tpm": 10}, (OTHER_KEY, IMAGES): {"rpm": 1}}
        assert {each.resource for each in acquired.statuses} == {MODEL, ALL, IMAGES}
        costs = [(each.entity_id, each.resource, each.cost) for _, each in settled]
        assert costs == [
            (USER, MODEL, {"rpm": 2}),
            (USER, ALL, {"tpm": 4}),
            (OTHER_KEY, IMAGES, {"rpm": 1}),
        ]
        assert [each.written for _, each in settled] == [{}, {"tpm": -6}, {}]
        assert [each.resource for each in rejected.violations] == [ALL]
        assert rejected.also == {(USER, ALL): {"tpm": 1000}}

    async def test_a_refusal_counts_for_the_first_resource_and_for_those_that_refused(
        self, shop: World
    ) -> None:
        require_usage_history(shop.spec)
        await shop.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await shop.take(TEAM, ALL, tpm=1000)
        await refusal(shop, {"rpm": 1}, {ALL: {"tpm": 5}, IMAGES: {"rpm": 1}}, KEY)
        shop.clock.advance(minutes=2)
        await shop.take(KEY, MODEL, rpm=1)
        await shop.take(KEY, ALL, tpm=1)
        await shop.take(KEY, IMAGES, rpm=1)
        counted = {}
        for entity_id in (KEY, TEAM):
            for resource in (MODEL, ALL, IMAGES):
                summary = await shop.repo.get_usage_summary(entity_id, resource)
                counted[entity_id, resource] = summary.rejected
        assert counted == {
            (KEY, MODEL): 1,
            (KEY, ALL): 1,
            (KEY, IMAGES): 0,
            (TEAM, MODEL): 0,
            (TEAM, ALL): 1,
            (TEAM, IMAGES): 0,
        }

    # --- bad input

    async def test_wrong_further_resources_are_refused(self, shop: World) -> None:
        names = [f"r{number}" for number in range(4)]
        wrong: list[tuple[object, type[ValidationError], str]] = [
            ({name: {} for name in names}, ValidationError, "also: at most 3 further resources"),
            (["all-models"], ValidationError, "must be a mapping"),
            ({ALL: 5}, ValidationError, r"also\.all-models: must be a mapping"),
            ({ALL: {"tpm": -1}}, ValidationError, r"also\.all-models\.tpm: must not be negative"),
            ({ALL: {"usd": 0.5}}, ValidationError, r"also\.all-models\.usd"),
            ({(KEY, ALL): {"tpm": 1.5}}, ValidationError, r"also\.key-1/all-models\.tpm"),
            ({"a b": {}}, InvalidNameError, "also"),
            ({("a#b", ALL): {}}, InvalidIdentifierError, "also"),
            ({(KEY, "a b"): {}}, InvalidNameError, "also"),
            ({(KEY, ALL, MODEL): {}}, ValidationError, r"a pair \(entity_id, resource\)"),
            ({3: {}}, ValidationError, r"a pair \(entity_id, resource\)"),
        ]
        for also, error, message in wrong:
            with pytest.raises(error, match=message):
                several(shop, {"rpm": 1}, also)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match=r"also\.all-models\.rpm: is not a limit of"):
            await granted(shop, {"rpm": 1}, {ALL: {"rpm": 1}})
        with pytest.raises(ValidationError, match=r"also\.all-models\.tpm: must be a whole number"):
            await granted(shop, {"rpm": 1}, {ALL: {"tpm": "1.5"}})
        for resource in (MODEL, ALL):
            assert await shop.repo.get_buckets(USER, resource) == []
        assert await granted(shop, {"rpm": 1}, {ALL: {}, MODEL: {}, IMAGES: {}, (KEY, ALL): {}})
        assert await granted(shop, {"rpm": 1}, {})


class SeveralCallersContract(_SeveralResources):
    """Whatever callers do at the same time, no token is lost or invented."""

    async def test_one_token_in_one_resource_admits_one_caller(self, shop: World) -> None:
        one, also = {"rpm": 1}, {ALL: {"rpm": 1}, IMAGES: {"rpm": 1}}
        for scarce in (MODEL, ALL, IMAGES):
            entity_id, levels = f"user-of-{scarce}", {}
            for resource in (MODEL, ALL, IMAGES):
                capacity = 1 if resource == scarce else CALLERS
                await shop.repo.set_limits(entity_id, [Limit.per_minute("rpm", capacity)], resource)
                levels[resource] = capacity - 1
            admitted = await agather([partial(granted, shop, one, also, entity_id)] * CALLERS)
            assert sum(admitted) == 1, scarce
            for resource, level in levels.items():
                assert await shop.tokens("rpm", entity_id, resource) == level, (scarce, resource)

    async def test_scarce_tokens_admit_as_many_callers_as_there_are(self, shop: World) -> None:
        """Callers name the resources in different orders, and all take them in one order."""
        await shop.repo.set_resource_defaults(MODEL, [Limit.per_minute("rpm", 3)])
        await shop.repo.set_resource_defaults(ALL, [Limit.per_minute("rpm", 5)])
        one = {"rpm": 1}

        async def first_the_model() -> bool:
            return await granted(shop, one, {ALL: one})

        async def first_all_models() -> bool:
            try:
                async with shop.limiter.acquire(USER, ALL, one, also={MODEL: one}):
                    return True
            except RateLimitExceeded:
                return False

        admitted = await agather([first_the_model, first_all_models] * (CALLERS // 2))
        assert sum(admitted) == 3
        assert await shop.tokens("rpm", USER, MODEL) == 0
        assert await shop.tokens("rpm", USER, ALL) == 2

    async def test_budgets_and_costs_of_many_callers_add_up(self, shop: World) -> None:
        chance = random.Random(7)
        costs = [Decimal(chance.randint(0, 90)) / 1000 for _ in range(CALLERS)]

        async def call(cost: Decimal) -> Decimal:
            also: Also = {ALL: {"usd": "0.05", "tpm": 3}}
            try:
                async with several(shop, {}, also) as lease:
                    await lease.resource(ALL).settle(usd=cost, tpm=2)
                    return cost
            except RateLimitExceeded:
                return Decimal(-1)

        outcomes = await agather([partial(call, cost) for cost in costs])
        paid = [cost for cost in outcomes if cost >= 0]
        assert paid
        shown = await budget(shop)
        assert (shown.used, shown.held) == (sum(paid), Decimal(0))
        assert shown.available == 1 - sum(paid)
        assert await shop.tokens("tpm", USER, ALL) == 1000 - 2 * len(paid)

    async def test_a_lease_of_several_resources_may_be_used_by_many(self, shop: World) -> None:
        async with several(shop, {"rpm": 1}, {ALL: {"tpm": 1}}) as lease:

            async def use(part: Lease, name: str) -> None:
                await part.consume({name: 2})
                await part.adjust({name: 1})
                await part.release({name: 1})

            uses = [partial(use, lease, "rpm"), partial(use, lease.resource(ALL), "tpm")]
            await agather(uses * 4)
        assert await shop.tokens("rpm", USER, MODEL) == 10 - 1 - 8
        assert await shop.tokens("tpm", USER, ALL) == 1000 - 1 - 8

    # --- outages

    async def test_an_outage_lets_all_resources_through_uncharged(
        self, shop: World, outage: Outage
    ) -> None:
        repository = await shop.open(request_timeout=shop.spec.moment_s)
        hasty = RateLimiter(repository)
        also = {ALL: {"tpm": 1}}
        async with hasty.acquire(USER, MODEL, {"rpm": 1}, also=also):
            pass
        with outage():
            async with hasty.acquire(
                USER, MODEL, {"rpm": 1}, also=also, on_unavailable="allow"
            ) as lease:
                assert (lease.consumed, lease.resource(ALL).consumed) == ({}, {})
        assert await shop.tokens("rpm", USER, MODEL) == 9
        assert await shop.tokens("tpm", USER, ALL) == 999
        assert repository.lost_settlements == 0

    # --- waiting

    async def test_a_caller_waits_until_all_resources_hold_its_amounts(self, shop: World) -> None:
        await shop.take(USER, MODEL, rpm=10)
        await shop.take(USER, ALL, tpm=1000)
        began_ms, entered = shop.clock(), list[int]()

        async def wait() -> None:
            async with several(shop, {"rpm": 1}, {ALL: {"tpm": 500}}, timeout=60):
                entered.append(shop.clock() - began_ms)

        async def move() -> None:
            await until(lambda: shop.clock.waiting == 1)
            assert await shop.granted(USER, MODEL, rpm=0), "nothing is reserved"
            shop.clock.set(began_ms + 29_999)
            await until(lambda: shop.clock.waiting == 1)
            assert not entered
            assert await shop.tokens("rpm", USER, MODEL) >= 4
            shop.clock.set(began_ms + 30_000)
            await until(lambda: bool(entered))

        await agather([wait, move])
        assert entered == [30_000]
        assert await shop.tokens("tpm", USER, ALL) == 0

    async def test_a_caller_never_waits_beyond_its_deadline(self, shop: World) -> None:
        await shop.take(USER, MODEL, rpm=10)
        error = await refusal(shop, {"rpm": 2}, {ALL: {"tpm": 1}}, timeout=11.9)
        assert error.retry_after_seconds == 12
        rejected: list[RateLimitExceeded] = []

        async def wait() -> None:
            rejected.append(await refusal(shop, {"rpm": 2}, {ALL: {"tpm": 1}}, timeout=15))

        async def move() -> None:
            await until(lambda: shop.clock.waiting == 1)
            shop.clock.advance(seconds=6)
            await shop.take(USER, MODEL, rpm=1)  # another caller is quicker
            await until(lambda: shop.clock.waiting == 1 or bool(rejected))
            shop.clock.advance(seconds=6)
            await until(lambda: bool(rejected))

        await agather([wait, move])
        assert rejected[0].retry_after_seconds == 6
        assert (await shop.limiter.available(USER, ALL))["tpm"] == 1000

    async def test_a_denied_resource_is_not_waited_for(self, shop: World) -> None:
        end = shop.clock() / 1000 + 5
        await shop.repo.set_mode(ALL, mode="deny", until=end)
        began_ms = shop.clock()
        error = await refusal(shop, {"rpm": 1}, {ALL: {"tpm": 1}}, timeout=60)
        assert shop.clock() == began_ms
        assert {(each.resource, each.mode) for each in error.violations} == {(ALL, "deny")}
        assert error.retry_after_seconds == 5

    async def test_a_resource_that_is_denied_while_a_caller_waits_ends_the_wait(
        self, shop: World
    ) -> None:
        await shop.take(USER, MODEL, rpm=10)
        rejected: list[RateLimitExceeded] = []

        async def wait() -> None:
            rejected.append(await refusal(shop, {"rpm": 5}, {ALL: {"tpm": 1}}, timeout=60))

        async def move() -> None:
            await until(lambda: shop.clock.waiting == 1)
            await shop.repo.set_mode(ALL, mode="deny", until=shop.clock() / 1000 + 45)
            shop.clock.advance(seconds=30)
            await until(lambda: bool(rejected) or shop.clock.waiting == 1)

        await agather([wait, move])
        assert {(each.resource, each.mode) for each in rejected[0].violations} == {(ALL, "deny")}
        assert rejected[0].retry_after_seconds == 15

    async def test_a_caller_that_wakes_too_late_is_told_what_was_missing(self, shop: World) -> None:
        rejected: list[RateLimitExceeded] = []
        held = several(shop, {}, {IMAGES: {"parallel": 2}})
        await held.__aenter__()

        async def wait() -> None:
            rejected.append(await refusal(shop, {"rpm": 1}, {IMAGES: {}}, timeout=60))

        async def move() -> None:
            await until(lambda: shop.clock.waiting == 1)
            await held.__aexit__(None, None, None)
            shop.clock.advance(seconds=61)
            await until(lambda: bool(rejected))

        await agather([wait, move])
        violation = rejected[0].primary_violation
        assert violation is not None
        assert (violation.resource, violation.limit_name) == (IMAGES, "parallel")
        assert rejected[0].retry_after_seconds > 0

    async def test_a_caller_waits_for_a_slot_of_a_further_resource(self, shop: World) -> None:
        entered: list[str] = []

        async def wait() -> None:
            async with several(shop, {"rpm": 1}, {IMAGES: {}}, timeout=60):
                entered.append("waited")

        async def hold() -> None:
            async with several(shop, {}, {IMAGES: {"parallel": 2}}):
                entered.append("held")
                await until(lambda: shop.clock.waiting == 1)
                assert entered == ["held"]

        async def wait_behind() -> None:
            await until(lambda: bool(entered))
            await wait()

        await agather([hold, wait_behind])
        assert entered == ["held", "waited"]
        assert (await shop.limiter.available(USER, IMAGES))["parallel"] == 2
