"""Modes of resources and entities: enforce, shadow, bypass and deny."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.observing import Recorder
from zae_limiter_contract._async.world import (
    API,
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)
from zae_limiter_contract.together import agather

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)
DAILY = Limit.quota("tokens", 1000, per="day")
USD = Limit.budget("usd", "10.00", per="month")
SLOTS = Limit.concurrent("parallel", 2)
CHILD, PARENT = "child", "parent"
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR_S, TTL_S = 3600, 60


async def usage(world: World, entity_id: str = USER) -> tuple[Any, int]:
    """Return the counters of this hour, and the number of admitted calls."""
    [hour], _ = await world.repo.get_usage_snapshots(entity_id, API, "hourly")
    return hour.counters, hour.total_events


async def make_family(world: World) -> None:
    """Create a child that cascades to its parent."""
    await world.configure(RPM)
    await world.repo.create_entity(PARENT)
    await world.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)


class ModeContract(Contract):
    """A switch changes the decision about a call, and never the limits or what was used."""

    @pytest.fixture
    async def drained(self, world: World) -> World:
        """A bucket whose 10 tokens are spent, at noon."""
        world.clock.set(int(NOON.timestamp() * 1000))
        await world.configure(RPM, TPM)
        await world.take(rpm=10)
        return world

    # --- shadow

    async def test_shadow_charges_a_debt_and_rejects_nothing(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="shadow")
        async with drained.acquire(rpm=4, tpm=30) as lease:
            assert lease.shadowed
            rpm, tpm = lease.statuses
            assert (rpm.available, rpm.exceeded, rpm.overdrawn) == (-4, False, True)
            assert (rpm.mode, rpm.retry_after_seconds) == ("shadow", 24)
            assert (tpm.available, tpm.overdrawn) == (70, False)
            assert lease.consumed == {"rpm": 4, "tpm": 30}
        assert await drained.tokens() == -4
        assert await drained.spent() == 14

    async def test_a_call_that_fits_is_not_shadowed(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="shadow")
        drained.clock.advance(seconds=6)
        async with drained.acquire(rpm=1) as lease:
            assert not lease.shadowed
        async with drained.acquire() as lease:
            assert not lease.shadowed
        async with drained.acquire(rpm=11) as lease:  # more than the bucket can ever hold
            assert lease.shadowed
        async with drained.acquire(tpm=1) as lease:  # the limit that it does not name is in debt
            assert lease.shadowed

    async def test_after_shadow_the_debt_rejects_until_it_is_repaid(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="shadow")
        await drained.take(rpm=4)
        await drained.repo.set_mode(API, mode="enforce")
        assert (await drained.refusal(rpm=1)).retry_after_seconds == 30
        assert (await drained.refusal(tpm=1)).retry_after_seconds == 24
        drained.clock.advance(seconds=30)
        await drained.take(rpm=1)

    async def test_an_overdrawn_quota_rejects_until_its_window_ends(self, world: World) -> None:
        world.clock.set(int(NOON.timestamp() * 1000))
        await world.configure(DAILY, RPM)
        await world.repo.set_mode(API, mode="shadow")
        await world.take(tokens=900)
        async with world.acquire(tokens=900) as lease:
            assert lease.shadowed
            assert lease.remaining["tokens"] == -800
            await lease.settle(tokens=300)
        assert await world.limiter.available(USER, API) == {"tokens": -200, "rpm": 10}
        await world.repo.set_mode(API, mode="enforce")
        assert (await world.refusal(rpm=1)).retry_after_seconds == 12 * HOUR_S
        world.clock.advance(seconds=12 * HOUR_S)
        await world.take(tokens=1000)

    async def test_a_reset_ends_the_debt_of_a_quota(self, world: World) -> None:
        await world.configure(DAILY)
        await world.repo.set_mode(API, mode="shadow")
        await world.take(tokens=5000)
        await world.repo.set_mode(API, mode="enforce")
        assert not await world.granted(tokens=1)
        await world.repo.reset_bucket(USER, API)
        await world.take(tokens=1000)

    async def test_shadow_begins_the_window_of_a_quota(self, world: World) -> None:
        world.clock.set(int(NOON.timestamp() * 1000))
        await world.configure(DAILY)
        await world.take(tokens=10)
        await world.repo.set_mode(API, mode="shadow")
        world.clock.advance(seconds=24 * HOUR_S)
        await world.take(tokens=1500)
        await world.repo.set_mode(API, mode="enforce")
        assert await world.limiter.available(USER, API) == {"tokens": -500}
        assert await world.spent("tokens") == 1500 + 10

    async def test_a_failed_block_in_shadow_gives_everything_back(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="shadow")
        with failing():
            async with drained.acquire(rpm=4):
                raise Failure
        assert await drained.tokens() == 0
        assert await drained.spent() == 10

    async def test_shadow_holds_more_slots_than_there_are(self, world: World) -> None:
        await world.configure(SLOTS)
        await world.repo.set_mode(API, mode="shadow")
        async with world.acquire(), world.acquire(), world.acquire() as third:
            assert third.shadowed
            await world.repo.set_mode(API, mode="enforce")
            assert not await world.granted()
        async with world.acquire(), world.acquire():
            assert not await world.granted()

    # --- bypass

    async def test_bypass_admits_and_counts_without_a_debit(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="bypass")
        async with drained.acquire(rpm=4, tpm=1000) as lease:
            assert not lease.shadowed
            rpm, _ = lease.statuses
            assert (rpm.available, rpm.exceeded, rpm.mode) == (0, False, "bypass")
            assert lease.consumed == {"rpm": 4, "tpm": 1000}
        assert await drained.tokens() == 0
        assert await drained.tokens("tpm") == 100
        assert await drained.spent("tpm") == 1000
        require_usage_history(drained.spec)
        assert await usage(drained) == ({"rpm": 14, "tpm": 1000}, 2)

    async def test_a_bypassed_lease_settles_as_usage_only(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="bypass")
        async with drained.acquire(rpm=4, tpm=50) as lease:
            await lease.adjust(rpm=3)
            await lease.settle(tpm=20, now=True)
            await lease.release(rpm=1)
            await drained.repo.set_mode(API, mode="enforce")  # the lease remembers its mode
        assert (await drained.tokens(), await drained.tokens("tpm")) == (0, 100)
        assert (await drained.spent(), await drained.spent("tpm")) == (16, 20)

    async def test_a_failed_block_in_bypass_is_no_usage(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="bypass")
        with failing():
            async with drained.acquire(rpm=4):
                raise Failure
        assert (await drained.tokens(), await drained.spent()) == (0, 10)

    async def test_a_bypass_of_a_new_bucket_leaves_it_full(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.set_mode(API, mode="bypass")
        await world.take(rpm=40)
        await world.take()
        await world.repo.set_mode(API, mode="enforce")
        assert await world.spent() == 40
        await world.take(rpm=10)

    async def test_bypass_counts_the_usage_of_quotas_and_budgets(self, world: World) -> None:
        world.clock.set(int(NOON.timestamp() * 1000))
        await world.configure(DAILY, USD)
        await world.repo.set_mode(API, mode="bypass")
        dollars: dict[str, Any] = {"usd": "12.50", "tokens": 3000}
        async with world.limiter.acquire(USER, API, dollars) as lease:
            assert lease.consumed == {"usd": Decimal("12.50"), "tokens": 3000}
            await lease.settle(usd="11.25")
        level = {"tokens": 1000, "usd": Decimal(10)}
        assert await world.limiter.available(USER, API) == level
        assert await world.spent("tokens") == 3000
        assert await world.spent("usd") == Decimal("11.25") * 10**6  # billionths, shown by 1000
        shown = await world.limiter.check_availability(USER, API)
        assert [(each.used, each.held) for each in shown.statuses] == [(0, 0), (0, 0)]

    async def test_bypass_takes_no_slots(self, world: World) -> None:
        await world.configure(SLOTS, RPM)
        await world.repo.set_mode(API, mode="bypass")
        async with world.acquire(parallel=2, rpm=1), world.acquire(), world.acquire():
            await world.repo.set_mode(API, mode="enforce")
            async with world.acquire(), world.acquire():
                assert not await world.granted()

    # --- deny

    async def test_deny_rejects_everything_until_it_is_changed(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.set_mode(API, mode="deny")
        refused = await world.refusal(rpm=1)
        assert (refused.retry_after_seconds, refused.statuses[0].mode) == (inf, "deny")
        assert refused.as_dict()["retry_after_seconds"] is None
        assert refused.as_dict()["limits"][0]["mode"] == "deny"
        assert "is denied; ask the operator" in str(refused)
        assert refused.headers()["RateLimit"] == '"rpm";r=0;t=86400'
        assert not await world.granted()
        assert await world.limiter.available(USER, API) == {"rpm": 0}
        assert await world.limiter.time_until_available(USER, API, {"rpm": 1}) == inf
        await world.repo.set_mode(API, mode="enforce")
        await world.take(rpm=10)

    async def test_deny_stops_a_lease_from_taking_more(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=5) as lease:
            await world.repo.set_mode(API, mode="deny")
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=1)
            await lease.settle(rpm=7)
        assert await world.tokens() == 3

    async def test_denied_calls_are_counted_as_rejected(self, drained: World) -> None:
        require_usage_history(drained.spec)
        await drained.repo.set_mode(API, mode="deny")
        assert not await drained.granted(rpm=3)
        other = await drained.open()
        await drained.repo.close()  # it stores its counts
        [hour], _ = await other.get_usage_snapshots(USER, API, "hourly")
        assert (hour.rejected, hour.total_events) == (1, 1)

    # --- until

    async def test_a_mode_ends_at_its_moment_without_a_write(self, drained: World) -> None:
        end = NOON.timestamp() + 2  # before the bucket has a token again
        for mode in ("deny", "bypass", "shadow"):
            drained.clock.set(int(NOON.timestamp() * 1000))
            await drained.repo.set_mode(API, mode=mode, until=end)
            before = len(await drained.repo.get_audit_events(f"$RESOURCE:{API}"))
            drained.clock.advance(ms=1999)
            assert await drained.granted(rpm=1) is (mode != "deny")
            drained.clock.advance(ms=1)
            refused = await drained.refusal(rpm=1)
            assert [each.mode for each in refused.statuses] == ["enforce", "enforce"]
            events = await drained.repo.get_audit_events(f"$RESOURCE:{API}")
            assert len(events) == before

    async def test_a_denial_says_until_when(self, drained: World) -> None:
        end = datetime(2026, 3, 10, 13, tzinfo=UTC)
        await drained.repo.set_mode(API, mode="deny", until=end)
        refused = await drained.refusal(rpm=1)
        assert refused.retry_after_seconds == HOUR_S
        assert refused.statuses[0].mode_until == end
        assert "is denied until 2026-03-10T13:00:00Z; retry in 3600 s" in str(refused)
        assert refused.retry_after_header == "3600"

    # --- precedence

    async def test_deny_wins_and_otherwise_the_entity_wins(self, drained: World) -> None:
        repo = drained.repo
        await repo.set_mode(API, mode="deny")
        await repo.set_mode(entity_id=USER, mode="bypass")
        assert not await drained.granted(rpm=1)
        await repo.set_mode(API, mode="shadow")
        async with drained.acquire(rpm=1) as lease:
            assert {each.mode for each in lease.statuses} == {"bypass"}
        await repo.set_mode(API, USER, "enforce")  # on this resource, before that on all of them
        assert not await drained.granted(rpm=1)
        assert await repo.resolve_mode(USER, API) == (SwitchMode.ENFORCE, None, ConfigSource.ENTITY)
        await repo.set_mode(entity_id=USER, mode="deny")
        source = ConfigSource.ENTITY_DEFAULT
        assert await repo.resolve_mode(USER, API) == (SwitchMode.DENY, None, source)
        await repo.set_mode(entity_id=USER, mode=None)
        await repo.set_mode(API, USER, None)
        async with drained.acquire(rpm=1) as lease:
            assert {each.mode for each in lease.statuses} == {"shadow"}

    async def test_a_mode_concerns_its_entity_and_resource_alone(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.set_mode("images", mode="deny")
        await world.repo.set_mode(API, "other", "deny")
        await world.take(rpm=1)
        assert not await world.granted(USER, "images", rpm=1)
        assert not await world.granted("other", rpm=1)
        await world.take("other", "text", rpm=1)
        await world.repo.set_mode(entity_id="other", mode="deny")
        assert not await world.granted("other", "text", rpm=1)

    async def test_a_mode_that_has_ended_leaves_the_next_one(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="bypass")
        await drained.repo.set_mode(API, USER, "deny", until=NOON.timestamp() + 60)
        assert not await drained.granted(rpm=1)
        drained.clock.advance(seconds=60)
        await drained.take(rpm=11)

    async def test_limits_of_a_call_are_under_the_mode_too(self, world: World) -> None:
        await world.configure(RPM)
        own = [Limit.per_minute("rpm", 2)]
        await world.repo.set_mode(API, mode="shadow")
        async with world.acquire(rpm=3, limits=own) as lease:
            assert lease.shadowed
        await world.repo.set_mode(API, mode="deny")
        assert not await world.granted(rpm=1, limits=own)

    async def test_the_shadow_mode_of_a_call_lets_a_denied_call_through(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.set_mode(API, mode="deny")
        async with world.limiter.acquire(USER, API, {"rpm": 1}, mode="shadow") as lease:
            assert (lease.shadowed, lease.consumed) == (True, {})
        await world.repo.set_mode(API, mode="shadow")
        async with world.limiter.acquire(USER, API, {"rpm": 11}, mode="shadow") as lease:
            assert (lease.shadowed, lease.consumed) == (True, {"rpm": 11})

    async def test_a_pause_stops_a_bucket_in_every_mode(self, drained: World) -> None:
        await drained.limiter.pause(USER, API, 30)
        for mode in ("shadow", "bypass"):
            await drained.repo.set_mode(API, mode=mode)
            assert (await drained.refusal(rpm=1)).retry_after_seconds == 30
        drained.clock.advance(seconds=30)
        await drained.take(rpm=20)

    # --- cascade

    async def test_each_bucket_of_a_cascade_has_its_own_mode(self, world: World) -> None:
        await make_family(world)
        await world.repo.set_mode(entity_id=CHILD, mode="bypass")
        await world.take(CHILD, rpm=6)
        assert (await world.tokens(entity_id=CHILD), await world.spent(entity_id=CHILD)) == (10, 6)
        assert await world.tokens(entity_id=PARENT) == 4
        await world.repo.set_mode(entity_id=PARENT, mode="shadow")
        async with world.acquire(CHILD, rpm=6) as lease:
            assert lease.shadowed
            assert [each.mode for each in lease.statuses] == ["bypass", "shadow"]
        assert await world.tokens(entity_id=PARENT) == -2
        await world.repo.set_mode(entity_id=CHILD, mode="enforce")
        await world.repo.set_mode(entity_id=PARENT, mode="deny")
        refused = await world.refusal(CHILD, rpm=1)
        assert {each.entity_id for each in refused.violations} == {PARENT}

    async def test_a_rejecting_parent_leaves_nothing_on_a_switched_child(
        self, world: World
    ) -> None:
        await make_family(world)
        await world.take(PARENT, rpm=8)
        await world.take(CHILD, rpm=1)
        for mode in ("bypass", "shadow"):
            await world.repo.set_mode(entity_id=CHILD, mode=mode)
            for _ in range(3):  # also with and without the cache of rejections
                refused = await world.refusal(CHILD, rpm=5)
                assert {each.entity_id for each in refused.violations} == {PARENT}
            assert await world.tokens(entity_id=CHILD) == 9
            assert await world.spent(entity_id=CHILD) == 1
            assert await world.tokens(entity_id=PARENT) == 1

    async def test_an_enforcing_child_rejects_under_a_bypassed_parent(self, world: World) -> None:
        await make_family(world)
        await world.repo.set_mode(entity_id=PARENT, mode="bypass")
        for _ in range(3):
            refused = await world.refusal(CHILD, rpm=11)
            assert {each.entity_id for each in refused.violations} == {CHILD}
        await world.take(CHILD, rpm=10)
        assert await world.spent(entity_id=PARENT) == 10
        assert await world.tokens(entity_id=PARENT) == 10

    async def test_a_denied_further_resource_stops_the_call(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.set_resource_defaults("search", [RPM])
        await world.repo.set_mode("search", mode="deny")
        with pytest.raises(RateLimitExceeded) as rejected:
            async with world.limiter.acquire(USER, API, {"rpm": 1}, also={"search": {"rpm": 1}}):
                pass
        assert {status.resource for status in rejected.value.violations} == {"search"}
        assert await world.limiter.available(USER, API) == {"rpm": 10}

    @pytest.mark.parametrize("mode", [SwitchMode.SHADOW, SwitchMode.BYPASS])
    async def test_a_rejection_leaves_nothing_on_a_switched_further_resource(
        self, world: World, mode: SwitchMode
    ) -> None:
        await world.configure(RPM)
        for resource in ("alpha", "zeta"):  # written before and after the resource that rejects
            await world.repo.set_resource_defaults(resource, [RPM, DAILY])
            await world.repo.set_mode(resource, mode=mode)
        also = {"alpha": {"rpm": 3, "tokens": 5}, "zeta": {"rpm": 3, "tokens": 5}}
        with pytest.raises(RateLimitExceeded):
            async with world.limiter.acquire(USER, API, {"rpm": 11}, also=also):
                pass
        for resource in also:
            left = await world.limiter.available(USER, resource)
            assert left == {"rpm": 10, "tokens": 1000}
            found, _ = await world.repo.get_usage_snapshots(USER, resource, "hourly")
            assert not any(amount for hour in found for amount in hour.counters.values())

    async def test_usage_through_children_is_counted_in_every_mode(self, world: World) -> None:
        require_usage_history(world.spec)
        await make_family(world)
        await world.repo.set_mode(API, mode="bypass")
        with failing():
            async with world.acquire(CHILD, rpm=5):
                raise Failure
        async with world.acquire(CHILD, rpm=5) as lease:
            await lease.settle(rpm=7)
        await world.repo.set_mode(API, mode="shadow")
        await world.take(CHILD, rpm=20)
        total = await world.repo.get_usage_summary(resource=API, window_type="hourly")
        assert total.total == {"rpm": 27}

    # --- waiting

    async def test_a_switched_call_with_a_timeout_does_not_wait(self, drained: World) -> None:
        for mode in ("shadow", "bypass"):
            await drained.repo.set_mode(API, mode=mode)
            async with drained.limiter.acquire(USER, API, {"rpm": 5}, timeout=30) as lease:
                assert lease.consumed == {"rpm": 5}
        assert (await drained.tokens(), await drained.spent()) == (-5, 20)
        await drained.repo.set_mode(API, mode="deny", until=drained.clock() / 1000 + 5)
        with pytest.raises(RateLimitExceeded) as refused:
            async with drained.limiter.acquire(USER, API, {"rpm": 1}, timeout=30):
                pass
        assert refused.value.retry_after_seconds == 5

    # --- reach

    async def test_a_change_reaches_other_clients_within_their_ttl(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=1)
        other = await world.open()
        await other.set_mode(entity_id=USER, mode="deny")
        await world.take(rpm=1)  # the cached configuration
        world.clock.advance(seconds=TTL_S)
        assert not await world.granted(rpm=1)
        await other.set_mode(entity_id=USER, mode=None)
        world.clock.advance(seconds=TTL_S)
        await world.take(rpm=1)

    # --- concurrency

    async def test_callers_at_once_are_all_charged_in_shadow(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="shadow")
        drained.clock.advance(seconds=30)

        async def call() -> bool:
            async with drained.acquire(rpm=1) as lease:
                return lease.shadowed

        shadowed = await agather([call] * 20)
        # Callers of a split bucket that come at once may all hear of its debt.
        assert shadowed.count(True) in range(15, 21)
        assert (await drained.tokens(), await drained.spent()) == (-15, 30)

    async def test_callers_at_once_are_all_counted_in_bypass(self, drained: World) -> None:
        await drained.repo.set_mode(API, mode="bypass")

        async def call() -> None:
            async with drained.acquire(rpm=1) as lease:
                await lease.settle(rpm=2)

        await agather([call] * 20)
        assert (await drained.tokens(), await drained.spent()) == (0, 50)

    # --- hooks

    async def test_hooks_hear_of_calls_that_shadow_let_through(self, drained: World) -> None:
        hooks = Recorder()
        limiter = RateLimiter(drained.repo, hooks=hooks)
        await drained.repo.set_mode(API, mode="shadow")
        async with limiter.acquire(USER, API, {"rpm": 4}) as lease:
            assert hooks.names == ["on_acquire", "on_shadow"]
            event = hooks.last()
            assert (event.charged, event.retry_after_seconds) == (True, 24)
            assert [each.limit_name for each in event.violations] == ["rpm"]
            await lease.consume(rpm=1)
            assert not hooks.last().is_acquire
        drained.clock.advance(seconds=60)
        async with limiter.acquire(USER, API, {"rpm": 1}):
            pass
        assert hooks.names[3:] == ["on_settle", "on_acquire", "on_settle"]
        await drained.repo.set_mode(API, mode="deny")
        with pytest.raises(RateLimitExceeded):
            async with limiter.acquire(USER, API, {"rpm": 1}):
                pass
        assert hooks.names[-1] == "on_reject"

    # --- storing

    async def test_limits_and_modes_do_not_touch_each_other(self, world: World) -> None:
        repo = world.repo
        deny = Switch(SwitchMode.DENY)
        await repo.set_limits(USER, [RPM], API)
        await repo.set_mode(API, USER, "deny")
        assert await repo.get_limits(USER, API) == [RPM]
        await repo.set_limits(USER, [TPM], API)
        assert await repo.get_mode(API, USER) == deny
        await repo.delete_limits(USER, API)
        assert (await repo.get_limits(USER, API), await repo.get_mode(API, USER)) == ([], deny)
        await repo.delete_limits(USER, API)
        await repo.set_limits(USER, [RPM], API, if_missing=True)
        assert await repo.get_mode(API, USER) == deny
        await repo.set_mode(API, USER, None)
        assert (await repo.get_limits(USER, API), await repo.get_mode(API, USER)) == ([RPM], None)
        await repo.set_mode(entity_id=USER, mode="shadow")
        await repo.set_mode(API, mode="bypass")
        modes = await repo.get_mode(entity_id=USER), await repo.get_mode(API)
        assert modes == (Switch(SwitchMode.SHADOW), Switch(SwitchMode.BYPASS))

    async def test_a_removed_mode_leaves_no_trace(self, world: World) -> None:
        repo = world.repo
        await repo.set_mode(API, mode="shadow")
        await repo.set_mode(API, USER, "shadow")
        assert await repo.list_resources_with_defaults() == [API]
        assert await repo.list_entities_with_custom_limits(API) == ([USER], None)
        assert await repo.set_mode(API)
        assert await repo.set_mode(API, USER, None)
        assert not await repo.set_mode(API)
        assert await repo.list_resources_with_defaults() == []
        assert await repo.list_entities_with_custom_limits(API) == ([], None)
        assert await repo.list_resources_with_entity_configs() == []

    async def test_a_deleted_entity_has_no_modes(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity(USER)
        await world.repo.set_mode(API, USER, "deny")
        await world.repo.set_mode(entity_id=USER, mode="deny")
        await world.repo.delete_entity(USER)
        await world.take(rpm=1)
        assert await world.repo.get_mode(entity_id=USER) is None

    async def test_changes_of_modes_are_in_the_audit_log(self, world: World) -> None:
        world.clock.set(int(NOON.timestamp() * 1000))
        repo = world.repo
        end = datetime(2026, 3, 10, 13, tzinfo=UTC)
        assert await repo.set_mode(API, USER, "deny", end, principal="ada")
        assert not await repo.set_mode(API, USER, "deny", end)
        world.clock.advance(ms=1)
        assert await repo.set_mode(API, USER, None, principal="bob")
        newest, oldest = await repo.get_audit_events(USER)
        denied = {"mode": "deny", "until": "2026-03-10T13:00:00Z"}
        assert (oldest.action, oldest.principal, oldest.resource) == ("mode_set", "ada", API)
        assert oldest.details == {**denied, "previous": None}
        assert newest.details == {"mode": None, "until": None, "previous": denied}

    async def test_bad_modes_are_refused(self, world: World) -> None:
        now_s = world.clock() / 1000
        bad: list[tuple[dict[str, Any], str]] = [
            ({"resource": API, "mode": "off"}, "mode"),
            ({"mode": "deny"}, "resource"),
            ({"resource": "no spaces", "mode": "deny"}, "resource"),
            ({"entity_id": "", "mode": "deny"}, "entity_id"),
            ({"resource": API, "mode": "deny", "until": now_s}, "until"),
            ({"resource": API, "mode": "deny", "until": "soon"}, "until"),
            ({"resource": API, "mode": "deny", "until": inf}, "until"),
            ({"resource": API, "mode": "deny", "until": True}, "until"),
            ({"resource": API, "mode": "enforce", "until": now_s + 60}, "until"),
            ({"resource": API, "mode": None, "until": now_s + 60}, "until"),
            ({"resource": API, "mode": "deny", "principal": 1}, "principal"),
        ]
        for arguments, field in bad:
            with pytest.raises(ValidationError) as caught:
                await world.repo.set_mode(**arguments)
            assert caught.value.field == field, arguments
        assert await world.repo.get_mode(API) is None
