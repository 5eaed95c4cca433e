"""Random histories: both engines answer alike, and as exact arithmetic says they must."""

import math
import sys
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.property.engines import Pair
from tests.property.model import ANYTHING, DEFAULT, HOUR_MS, NO_ENTITY, Doubt, Hold, Lease, World
from zae_limiter import Limit
from zae_limiter.models.limit import MAX_TOKENS
from zae_limiter.testing import FakeClock

NAMES = ("rpm", "tpm", "rpd")
ENTITIES = ("child", "parent", "solo")
RESOURCES = ("gpt-4", "mail")
DAY_MS = 86_400_000
LONGEST_WAIT_MS = 50 * 365 * DAY_MS

numbers = st.sampled_from([1, 2, 3, 5, 7, 10, 50, 1000, 10**6, 10**15])
periods = st.sampled_from([1, 3, 60, 3600, 86_400, 30 * 86_400])
entities = st.sampled_from(ENTITIES)
resources = st.sampled_from(RESOURCES)


@st.composite
def limit_sets(draw):
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    return tuple(Limit(name, draw(numbers), draw(numbers), draw(periods)) for name in chosen)


levels = st.sampled_from(
    [
        (NO_ENTITY, ANYTHING),
        *((NO_ENTITY, resource) for resource in RESOURCES),
        *((entity, resource) for entity in ENTITIES for resource in (*RESOURCES, DEFAULT)),
    ]
)
overrides = st.none() | st.none() | limit_sets()
# Amounts are numbers, or relative to what is there: all of it, one more, or half.
amount_choices = st.sampled_from([0, 1, 1, 2, 3, 10, 10**6, 10**15, "all", "half", "one more"])
consumptions = st.dictionaries(st.sampled_from(NAMES), amount_choices, min_size=0, max_size=3)
mistakes = st.sampled_from([False] * 7 + [True])  # whether limits are named that do not exist
steps_ms = st.one_of(
    st.integers(1, 3),
    st.integers(1, 5000),
    st.integers(1, 3 * HOUR_MS),
    st.integers(1, 400 * DAY_MS),
    st.integers(1, 20 * 365 * DAY_MS),
)
adjustments = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([-(10**6), -7, -1, 1, 2, 30, 10**6]), min_size=1
)
settled_amounts = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([0, 1, 2, 7, 30, 10**6]), min_size=1
)


@dataclass(frozen=True)
class Call:
    """Entity, resource and amounts of an acquire, its client, and the limits that it brings."""

    client: int
    entity: str
    resource: str
    own: tuple[Limit, ...] | None
    mistaken: bool


calls = st.builds(Call, st.sampled_from([0, 1]), entities, resources, overrides, mistakes)


class Histories(RuleBasedStateMachine):
    """Everything that can happen to a namespace, in any order, leases left open meanwhile."""

    def __init__(self):
        super().__init__()
        self.clock = FakeClock()
        self.world = World()
        self.pair = Pair(self.clock)
        self.leases = []

    def teardown(self):
        try:
            if sys.exc_info()[0] is None:  # otherwise something else has failed already
                self._check_usage()
                for log in self.world.logs.values():
                    log.check()
        finally:
            self.pair.close()

    @initialize(system=limit_sets(), parent=st.none() | limit_sets(), cascade=st.booleans())
    def begin(self, system, parent, cascade):
        self.set_limits((NO_ENTITY, ANYTHING), system)
        if parent is not None:
            self.set_limits(("parent", DEFAULT), parent)
        self.create_entity("child", "parent", cascade)

    # --- time

    @rule(step=steps_ms)
    def let_time_pass(self, step):
        self.clock.advance(ms=step)

    @rule()
    def go_to_the_next_hour(self):
        now = self.clock()
        self.clock.set((now // HOUR_MS + 1) * HOUR_MS)

    # --- configuration

    @rule(level=levels, limits=limit_sets())
    def set_limits(self, level, limits):
        entity, resource = level
        if entity:
            self._must(lambda engine: engine.repository.set_limits(entity, limits, resource))
        elif resource:
            self._must(lambda engine: engine.repository.set_resource_defaults(resource, limits))
        else:
            self._must(lambda engine: engine.repository.set_system_defaults(limits))
        self.world.configs[level] = limits

    @rule(level=levels)
    def delete_limits(self, level):
        entity, resource = level
        if entity:
            self._must(lambda engine: engine.repository.delete_limits(entity, resource))
        elif resource:
            self._must(lambda engine: engine.repository.delete_resource_defaults(resource))
        else:
            self._must(lambda engine: engine.repository.delete_system_defaults())
        self.world.configs.pop(level, None)

    @rule(entity=entities, parent=st.none() | entities, cascade=st.booleans())
    def create_entity(self, entity, parent, cascade):
        answer = self.pair.ask(
            lambda engine: engine.repository.create_entity(entity, None, parent, cascade)
        )
        if entity == parent or (cascade and parent is None):
            assert answer.error == "ValidationError"
        elif entity in self.world.entities:
            assert answer.error == "EntityExistsError"
        else:
            assert answer.granted
            self.world.entities[entity] = (parent, cascade)

    @rule(entity=entities, parent=st.none() | entities, cascade=st.booleans())
    def set_parent(self, entity, parent, cascade):
        answer = self.pair.ask(lambda engine: engine.repository.set_parent(entity, parent, cascade))
        if entity == parent:
            assert answer.error == "ValidationError"
        elif entity not in self.world.entities:
            assert answer.error == "EntityNotFoundError"
        else:
            assert answer.granted
            self.world.entities[entity] = (parent, cascade and parent is not None)

    @rule(entity=entities)
    def delete_entity(self, entity):
        self._must(lambda engine: engine.repository.delete_entity(entity))
        self.world.delete_entity(entity)

    # --- acquiring

    @rule(call=calls, amounts=st.lists(consumptions, min_size=1, max_size=3))
    def acquire(self, call, amounts):
        for consume in amounts:
            self._acquire(call, consume, keep=False)

    @rule(call=calls, consume=consumptions, on_error=st.sampled_from(["refund", "keep"]))
    def acquire_and_hold(self, call, consume, on_error):
        self._acquire(call, consume, keep=True, on_error=on_error)

    def _acquire(self, call, consume, *, keep, on_error="refund"):
        parts, amounts = self._planned(call, consume)
        blocks = [
            engine.limiters[call.client].acquire(
                call.entity, call.resource, amounts, call.own, on_error=on_error
            )
            for engine in self.pair.engines
        ]
        held = []

        def enter(block):
            held.append(block.__enter__())
            return held[-1].consumed

        answer = self.pair.ask_each([lambda block=block: enter(block) for block in blocks])
        if not self._judge(answer, parts, amounts):
            return answer
        assert answer.value == amounts
        holds = [_hold(parts, amounts)]
        lease = Lease(call.entity, call.resource, call.own, holds, on_error == "keep")
        if keep:
            self.leases.append((lease, blocks, held))
        else:
            self._must_each([lambda block=block: _leave(block) for block in blocks])
        return answer

    def _planned(self, call, consume):
        """The model's view of the buckets (None without limits), and the amounts as numbers."""
        now = self.clock()
        shares = self.world.scope(call.entity, call.resource, call.own)
        if shares is None:
            return None, dict.fromkeys(consume, 1)
        try:
            parts = self.world.plan(shares, {}, now)
            known = {name for share in shares for name in share.names}
            amounts = {
                name: _number(amount, name, parts, now)
                for name, amount in consume.items()
                if call.mistaken or name in known
            }
            return self.world.plan(shares, amounts, now), amounts
        except Doubt:
            reject()

    def _judge(self, answer, parts, amounts, *, is_acquire=True):
        """Check a charge's answer against the model; True if it was granted, and then noted."""
        now = self.clock()
        if parts is None or not _all_known(parts, amounts):
            assert answer.error == "ValidationError"
            return False
        if answer.granted:
            for part in parts:
                assert part.bucket.paused_until_ms <= now
                for key, pot, amount in part.pots():
                    assert amount <= pot.limit.capacity, (key, pot, amount)
                    assert pot.most(now) > amount, (key, pot, amount)
            self.world.grant(parts, now, is_acquire=is_acquire)
            for part in parts:
                self._check_bucket(part.share.entity, part.share.resource)
            return True
        assert answer.error == "RateLimitExceeded"
        self._check_statuses(answer.value, parts)
        assert any(status.exceeded for status in answer.value)
        for part in parts:
            place = (part.share.entity, part.share.resource)
            states = self._must(lambda engine, at=place: engine.repository.get_buckets(*at))
            self.world.refuse(part, [state.limit for state in states], now)
            self._check_bucket(*place)
        return False

    def _check_statuses(self, statuses, parts):
        now = self.clock()
        expected = [(part, *each) for part in parts for each in part.pots()]
        assert len(statuses) == len(expected)
        for status, (part, key, pot, amount) in zip(statuses, expected, strict=True):
            about = (status, key, pot)
            assert (status.entity_id, status.resource) == (part.share.entity, part.share.resource)
            assert status.limit == pot.limit, about
            assert status.limit_name == pot.limit.name
            assert status.requested == amount
            _check_level(status.available, 1, pot, now)
            paused_ms = max(0, part.bucket.paused_until_ms - now)
            assert status.paused_seconds == paused_ms / 1000, about
            if paused_ms:
                assert status.exceeded, about
            elif status.exceeded:
                assert pot.least(now) < amount, about
            else:
                assert pot.most(now) > amount, about
            if amount > pot.limit.capacity:
                assert status.retry_after_seconds == math.inf, about
            else:
                soonest, latest = (max(paused_ms, each) for each in pot.wait_ms(amount, now))
                assert soonest / 1000 <= status.retry_after_seconds <= latest / 1000, about
                assert (status.retry_after_seconds > 0) == status.exceeded, about

    @rule(call=calls, consume=consumptions)
    def wait_as_long_as_told(self, call, consume):
        """A refused request fits after exactly the stated time, and not a millisecond before."""
        parts, amounts = self._planned(call, consume)
        if parts is None or not _all_known(parts, amounts):
            return
        answer = self._acquire(call, amounts, keep=False)
        if answer.granted:
            return
        wait = max(status.retry_after_seconds for status in answer.value)
        if not 0 < wait * 1000 < LONGEST_WAIT_MS:
            return
        self.clock.advance(ms=round(wait * 1000) - 1)
        assert not self._look(call, amounts).available
        self.clock.advance(ms=1)
        assert self._acquire(call, amounts, keep=False).granted

    @rule(call=calls, consume=consumptions)
    def look(self, call, consume):
        parts, amounts = self._planned(call, consume)
        if parts is None or not _all_known(parts, amounts):
            return
        self._check_statuses(self._look(call, amounts).statuses, parts)
        levels = self._must(
            lambda engine: engine.limiters[call.client].available(
                call.entity, call.resource, call.own
            )
        )
        assert levels.keys() == {name for part in parts for name in part.share.names}

    def _look(self, call, amounts):
        return self._must(
            lambda engine: engine.limiters[call.client].check_availability(
                call.entity, call.resource, amounts, call.own
            )
        )

    # --- leases

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), consume=consumptions, mistaken=mistakes)
    def consume_more(self, pick, consume, mistaken):
        lease, _, held = self.leases[pick % len(self.leases)]
        call = Call(0, lease.entity, lease.resource, lease.override, mistaken)
        parts, amounts = self._planned(call, consume)
        answer = self.pair.ask_each([lambda each=each: each.consume(**amounts) for each in held])
        if self._judge(answer, parts, amounts, is_acquire=False):
            lease.holds.append(_hold(parts, amounts))
        self._check_lease(lease, held)

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), amounts=adjustments, mistaken=mistakes)
    def adjust(self, pick, amounts, mistaken):
        lease, _, held = self.leases[pick % len(self.leases)]
        if not mistaken:
            amounts = {name: each for name, each in amounts.items() if name in lease.names}
        answer = self.pair.ask_each([lambda each=each: each.adjust(**amounts) for each in held])
        cost = lease.consumed()
        if amounts.keys() <= lease.names and all(
            cost.get(name, 0) + amount >= 0 for name, amount in amounts.items()
        ):
            assert answer.granted
            for name, amount in amounts.items():
                lease.pending[name] = lease.pending.get(name, 0) + amount
            lease.lower_kept()
        else:
            assert answer.error == "ValidationError"
        self._check_lease(lease, held)

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), amounts=consumptions)
    def release(self, pick, amounts):
        lease, _, held = self.leases[pick % len(self.leases)]
        amounts = {
            name: lease.held(name) if amount == "all" else amount
            for name, amount in amounts.items()
            if not isinstance(amount, str) or amount == "all"
        }
        answer = self.pair.ask_each([lambda each=each: each.release(**amounts) for each in held])
        known = amounts.keys() <= lease.names
        if known and all(amount <= lease.held(name) for name, amount in amounts.items()):
            assert answer.granted, answer
            self._settled(lambda now: self.world.release(lease, amounts, now), lease)
        else:
            assert answer.error == "ValidationError"
        self._check_lease(lease, held)

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), amounts=settled_amounts, now=st.booleans(), mistaken=mistakes)
    def settle(self, pick, amounts, now, mistaken):
        lease, _, held = self.leases[pick % len(self.leases)]
        if not mistaken:
            amounts = {name: each for name, each in amounts.items() if name in lease.names}
        answer = self.pair.ask_each(
            [lambda each=each: each.settle(amounts, now=now) for each in held]
        )
        if not amounts.keys() <= lease.names:
            assert answer.error == "ValidationError"
        else:
            assert answer.granted, answer
            for name, amount in amounts.items():
                lease.pending[name] = amount - lease.held(name)
                lease.kept[name] = amount
            if now:
                self._settled(lambda now_ms: self.world.settle_now(lease, amounts, now_ms), lease)
        self._check_lease(lease, held)

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), failed=st.booleans())
    def end_lease(self, pick, failed):
        lease, blocks, held = self.leases.pop(pick % len(self.leases))
        self._must_each([lambda block=block: _leave(block, failed) for block in blocks])
        self._settled(lambda now: self.world.end_lease(lease, now, failed=failed), lease)
        answer = self.pair.ask_each([lambda each=each: each.consume(rpm=1) for each in held])
        assert answer.error == "LeaseExpiredError"

    def _settled(self, settle, lease):
        try:
            settle(self.clock())
        except Doubt:
            reject()
        for hold in lease.holds:
            for share in hold.shares:
                self._check_bucket(share.entity, share.resource)

    def _check_lease(self, lease, held):
        consumed = self._must_each([lambda each=each: each.consumed for each in held])
        assert Counter(consumed) == Counter(lease.consumed())

    # --- mending and forgetting

    @rule(entity=entities, resource=resources)
    def reset(self, entity, resource):
        self._must(lambda engine: engine.repository.reset_bucket(entity, resource))
        self._mended(lambda now: self.world.reset(entity, resource, now), entity, resource)

    @rule(
        entity=entities,
        resource=resources,
        amounts=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 20), min_size=1),
    )
    def top_up(self, entity, resource, amounts):
        answer = self.pair.ask(lambda engine: engine.repository.top_up(entity, resource, amounts))
        bucket = self.world.buckets.get((entity, resource))
        if bucket is not None and not bucket.pots and bucket.paused_until_ms <= self.clock():
            # Only a pause had made it. It is over: the bucket may have been forgotten, unseen.
            assert answer.error in (None, "ValidationError")
            return
        known = self._mended(
            lambda now: self.world.top_up(entity, resource, amounts, now), entity, resource
        )
        assert answer.error == (None if known else "ValidationError")

    @rule(
        entity=entities, resource=resources, seconds=st.sampled_from([0, 1, 1, 30, 200, 600, 600])
    )
    def pause(self, entity, resource, seconds):
        self._must(lambda engine: engine.limiters[0].pause(entity, resource, seconds))
        self._mended(lambda now: self.world.pause(entity, resource, seconds, now), entity, resource)

    def _mended(self, mend, entity, resource):
        try:
            result = mend(self.clock())
        except Doubt:
            reject()
        self._check_bucket(entity, resource)
        return result

    @rule()
    def keep_house(self):
        for engine in self.pair.engines:
            engine.keep_house()
        for entity, resource in list(self.world.buckets):
            states = self._must(
                lambda engine, at=(entity, resource): engine.repository.get_buckets(*at)
            )
            if not states and self.world.buckets[entity, resource].pots:
                self.world.forgotten(entity, resource, self.clock())

    # --- what must always be so

    def _check_bucket(self, entity, resource):
        """Every stored limit: parameters and net consumption exactly, the level to rounding."""
        now = self.clock()
        states = self._must(lambda engine: engine.repository.get_buckets(entity, resource))
        bucket = self.world.buckets.get((entity, resource))
        pots = {} if bucket is None else bucket.pots
        shown = sorted(
            states, key=lambda each: (str(each.limit), each.total_consumed_milli, each.tokens_milli)
        )
        expected = sorted(pots.values(), key=lambda pot: (str(pot.limit), pot.net, pot.least(now)))
        assert [state.limit for state in shown] == [pot.limit for pot in expected]
        for state, pot in zip(shown, expected, strict=True):
            assert state.total_consumed_milli == pot.net * 1000, (state, pot)
            _check_level(state.tokens_milli, 1000, pot, now)

    def _check_usage(self):
        world = self.world
        for entity in ENTITIES:
            snapshots, more = self._must(
                lambda engine, entity=entity: engine.repository.get_usage_snapshots(
                    entity, window_type="hourly", limit=10_000
                )
            )
            assert more is None
            used, through, events = Counter(), Counter(), Counter()
            for each in snapshots:
                for name, amount in each.through_children.items():
                    through[each.resource, each.window_start, name] += amount
                events[each.resource, each.window_start] += each.total_events
                for name, amount in each.counters.items():
                    used[each.resource, each.window_start, name] += amount
            assert _nonzero(used) == _nonzero(
                {
                    (at[1], _iso(at[2]), at[3]): amount
                    for at, amount in world.usage.items()
                    if at[0] == entity
                }
            )
            assert _nonzero(through) == _nonzero(
                {
                    (at[1], _iso(at[2]), at[3]): amount
                    for at, amount in world.through_children.items()
                    if at[0] == entity
                }
            )
            assert _nonzero(events) == _nonzero(
                {(at[1], _iso(at[2])): n for at, n in world.events.items() if at[0] == entity}
            )

    def _must(self, call):
        answer = self.pair.ask(call)
        assert answer.granted, answer
        return answer.value

    def _must_each(self, calls):
        answer = self.pair.ask_each(calls)
        assert answer.granted, answer
        return answer.value


def _number(amount, name, parts, now):
    if not isinstance(amount, str):
        return amount
    levels = [
        math.floor(pot.level_at(now))
        for part in parts
        for _, pot, _ in part.pots()
        if pot.limit.name == name
    ]
    level = max(0, min(levels, default=0))
    return {"all": level, "half": level // 2, "one more": min(level + 1, MAX_TOKENS)}[amount]


def _hold(parts, amounts):
    return Hold([part.share for part in parts], dict(amounts))


def _all_known(parts, amounts):
    return amounts.keys() <= {name for part in parts for name in part.share.names}


def _check_level(shown, units, pot, now):
    """``shown`` is the level rounded down to ``1 / units`` tokens."""
    capacity = Fraction(pot.limit.capacity)
    assert shown >= math.floor(min(capacity, pot.least(now)) * units), (shown, pot)
    assert shown <= math.floor(min(capacity, pot.most(now)) * units), (shown, pot)


def _leave(block, failed=False):
    if failed:
        block.__exit__(RuntimeError, RuntimeError("the block raised"), None)
    else:
        block.__exit__(None, None, None)


def _iso(hour):
    from zae_limiter.models.timestamps import iso_from_ms

    return iso_from_ms(hour * HOUR_MS)


def _nonzero(counts):
    return {key: count for key, count in counts.items() if count}


COMMON = settings(
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(600)  # if one fails: time to find the shortest
class TestHistories(Histories.TestCase):
    settings = settings(COMMON, max_examples=15, stateful_step_count=50)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestManyLongHistories(Histories.TestCase):
    settings = settings(COMMON, max_examples=1500, stateful_step_count=80)
