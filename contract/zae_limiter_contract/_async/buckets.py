"""Reading, resetting and topping up buckets."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.bucket import BucketState
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

# As providers name their models: every mark that a resource may have, and a leading digit.
MODEL_IDS = [
    "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
    "llama3:8b",
    "llama3",
    "ft:gpt-4o-mini:acme::x",
    "claude-3-5-sonnet@20240620",
    "01-ai/Yi-34B",
    "01-ai",
    "gpt-4o+tools",
]
RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)


def _levels(states: list[BucketState]) -> dict[Any, Any]:
    """Return the levels of limits by their amounts."""
    return {state.limit.amount: state.available for state in states}


class BucketContract(Contract):
    """States of buckets, sums over entities, resets and top-ups."""

    async def test_a_bucket_shows_level_limit_and_consumption(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=4)
        world.clock.advance(seconds=3)
        found = await world.repo.get_bucket(USER, API, "rpm")
        assert found == BucketState(
            USER, API, "rpm", 6500, world.clock(), 10_000, 10_000, 60_000, 4000
        )
        assert (found.tokens, found.capacity, found.limit) == (6, 10, RPM)

    async def test_resources_may_be_model_ids_and_are_kept_apart(self, world: World) -> None:
        repo = world.repo
        for number, model in enumerate(MODEL_IDS, 1):
            await repo.set_resource_defaults(model, [Limit.per_minute("rpm", 10 * number)])
            await repo.set_limits("key-1", [Limit.per_minute("rpm", number)], model)
        for number, model in enumerate(MODEL_IDS, 1):
            await world.take(USER, model, rpm=10 * number)
            await world.take("key-1", model, rpm=number)
            assert not await world.granted("key-1", model, rpm=1)
            assert {state.entity_id for state in await repo.get_resource_buckets(model)} == {
                USER,
                "key-1",
            }
            assert await repo.list_entities_with_custom_limits(model) == (["key-1"], None)
            assert len(await repo.get_audit_events(f"$RESOURCE:{model}")) == 1
        states = await repo.get_buckets("key-1")
        assert {state.resource: state.tokens for state in states} == dict.fromkeys(MODEL_IDS, 0)
        assert await repo.list_resources_with_defaults() == sorted(MODEL_IDS)
        assert await repo.list_resources_with_entity_configs() == sorted(MODEL_IDS)
        await repo.delete_entity("key-1")
        assert await repo.get_buckets("key-1") == []
        assert await repo.list_resources_with_entity_configs() == []

    async def test_the_last_use_of_a_bucket_is_known_to_the_hour(self, world: World) -> None:
        await world.configure(RPM)
        assert await world.repo.get_last_use(USER, API) is None
        for expected in ("2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"):
            await world.take(rpm=1)
            assert await world.repo.get_last_use(USER, API) == expected
            world.clock.advance(hours=5)

    async def test_a_bucket_that_was_never_used_is_none(self, world: World) -> None:
        await world.configure(RPM)
        assert await world.repo.get_bucket(USER, API, "rpm") is None
        await world.take(rpm=1)
        assert await world.repo.get_bucket(USER, API, "tpm") is None
        assert await world.repo.get_bucket(USER, "other", "rpm") is None

    async def test_the_buckets_of_an_entity_are_listed_by_resource(self, world: World) -> None:
        await world.configure(RPM, TPM)
        for resource in ("c", "a", "b"):
            await world.take(USER, resource, rpm=1)
        await world.take("user-10", "a", rpm=1)
        found = await world.repo.get_buckets(USER)
        assert [(each.resource, each.limit_name) for each in found] == [
            (resource, name) for resource in "abc" for name in ("rpm", "tpm")
        ]
        assert [each.resource for each in await world.repo.get_buckets(USER, "b")] == ["b", "b"]
        assert await world.repo.get_buckets("nobody") == []

    async def test_the_buckets_of_a_resource_are_listed_by_entity(self, world: World) -> None:
        await world.configure(RPM, TPM)
        for entity_id in ("c", "a", "b"):
            await world.take(entity_id, rpm=1)
        await world.take("a", "other", rpm=1)
        found = await world.repo.get_resource_buckets(API)
        assert [each.entity_id for each in found] == ["a", "a", "b", "b", "c", "c"]
        only = await world.repo.get_resource_buckets(API, "tpm")
        assert [(each.entity_id, each.limit_name) for each in only] == [
            ("a", "tpm"),
            ("b", "tpm"),
            ("c", "tpm"),
        ]

    async def test_all_buckets_are_listed_page_by_page(self, world: World) -> None:
        await world.configure(RPM, TPM)
        used = {(entity_id, resource) for entity_id in "abcde" for resource in (API, "other")}
        for entity_id, resource in used:
            await world.take(entity_id, resource, rpm=1)
        narrowed: list[tuple[dict[str, str], set[tuple[str, str]]]] = [
            ({}, used),
            ({"resource": API}, {key for key in used if key[1] == API}),
            ({"entity_id": "b"}, {key for key in used if key[0] == "b"}),
            ({"entity_id": "b", "resource": API}, {("b", API)}),
        ]
        for of, expected in narrowed:
            for limit in (1, 3, 100):
                keys: list[tuple[str, str]] = []
                cursor, first = None, True
                while first or cursor is not None:
                    states, cursor = await world.repo.list_buckets(limit, cursor, **of)
                    page = list(dict.fromkeys((each.entity_id, each.resource) for each in states))
                    assert 0 < len(page) <= limit
                    assert [each.limit_name for each in states] == ["rpm", "tpm"] * len(page)
                    keys += page
                    first = False
                assert set(keys) == expected
                assert len(keys) == len(expected)

    async def test_a_page_of_buckets_shows_their_levels(self, world: World) -> None:
        await world.configure(RPM)
        await world.owe(rpm=14)
        world.clock.advance(seconds=3)
        assert await world.repo.list_buckets() == (await world.repo.get_buckets(USER), None)

    async def test_a_page_of_buckets_goes_on_although_the_last_one_seen_is_gone(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        for entity_id in "abcd":
            await world.take(entity_id, rpm=1)
        of_all: dict[str, str] = {}
        for narrowed in (of_all, {"resource": API}):
            states, cursor = await world.repo.list_buckets(2, **narrowed)
            await world.repo.delete_entity(states[-1].entity_id)
            rest, end = await world.repo.list_buckets(10, cursor, **narrowed)
            left = {each.entity_id for each in states + rest}
            assert (len(states + rest), len(left), end) == (4, 4, None)
            await world.take(states[-1].entity_id, rpm=1)

    async def test_listings_take_their_own_cursors_of_the_longest_names(self, world: World) -> None:
        await world.configure(RPM)
        ids = [letter * 256 for letter in "abc"]
        resources = [letter * 128 for letter in "de"]
        for entity_id in ids:
            for resource in resources:
                await world.take(entity_id, resource, rpm=1)
        listed: list[tuple[str, str]] = []
        cursor, first = None, True
        while first or cursor is not None:
            states, cursor = await world.repo.list_buckets(1, cursor)
            listed += [(state.entity_id, state.resource) for state in states]
            first = False
        assert sorted(listed) == [(entity_id, name) for entity_id in ids for name in resources]
        found: list[str] = []
        cursor, first = None, True
        while first or cursor is not None:
            entities, cursor = await world.repo.list_entities(1, cursor)
            found += [entity.id for entity in entities]
            first = False
        assert sorted(found) == ids

    async def test_where_nothing_was_used_there_are_no_buckets(self, world: World) -> None:
        assert await world.repo.list_buckets() == ([], None)
        assert await world.repo.list_buckets(5, resource=API) == ([], None)
        assert await world.repo.list_buckets(5, entity_id=USER) == ([], None)
        assert await world.repo.list_buckets(5, entity_id=USER, resource=API) == ([], None)

    @for_each(
        ("field", "value"),
        [("limit", 0), ("limit", 1.5), ("cursor", "a"), ("cursor", 5), ("resource", "#")],
    )
    async def test_a_page_of_buckets_is_asked_for_correctly(
        self, world: World, field: str, value: Any
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            await world.repo.list_buckets(**{field: value})
        assert caught.value.field == field

    async def test_resources_are_listed_if_they_are_registered_or_in_use(
        self, world: World
    ) -> None:
        assert await world.repo.list_resources() == []
        await world.configure(RPM)
        await world.repo.set_resource_defaults("with-defaults", [RPM])
        await world.repo.set_limits(USER, [RPM], "with-own-limits")
        await world.repo.set_limits(USER, [RPM])
        await world.take(USER, "in-use", rpm=1)
        await world.take("user-2", "in-use", rpm=1)
        await world.take("user-2", "with-defaults", rpm=1)
        listed = ["in-use", "with-defaults", "with-own-limits"]
        assert await world.repo.list_resources() == listed
        await world.repo.delete_entity(USER)  # it stays listed without buckets
        await world.repo.delete_entity("user-2")
        assert await world.repo.list_resources() == ["in-use", "with-defaults"]

    async def test_the_capacity_of_a_resource_is_the_sum_over_its_entities(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.repo.set_limits("big", [Limit.per_minute("rpm", 30)])
        await world.take("big", rpm=20)
        await world.take("small", rpm=5)
        found = await world.limiter.get_resource_capacity(API, "rpm")
        assert (found.total_capacity, found.total_available) == (40, 15)
        assert found.utilization_pct == pytest.approx(62.5)
        assert [(each.entity_id, each.capacity, each.available) for each in found.entities] == [
            ("big", 30, 10),
            ("small", 10, 5),
        ]
        assert found.entities[1].utilization_pct == pytest.approx(50)

    async def test_the_capacity_may_count_top_level_entities_only(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity("team")
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rpm=4)
        await world.take("stranger", rpm=1)
        found = await world.limiter.get_resource_capacity(API, "rpm", parents_only=True)
        assert [each.entity_id for each in found.entities] == ["stranger", "team"]
        assert (found.total_capacity, found.total_available) == (20, 15)

    @pytest.mark.parametrize("first", ["stored", "of the call"])
    async def test_the_capacity_counts_an_entity_with_limits_of_a_call_once(
        self, world: World, first: str
    ) -> None:
        await world.configure(RPM)
        own = [Limit.per_minute("rpm", 100)]
        if first == "stored":
            await world.take(rpm=4)
            await world.take(limits=own, rpm=30)
        else:
            await world.take(limits=own, rpm=30)
            await world.take(rpm=4)
        await world.take("other", rpm=1)
        found = await world.limiter.get_resource_capacity(API, "rpm")
        assert [(each.entity_id, each.capacity, each.available) for each in found.entities] == [
            ("other", 10, 9),
            (USER, 10, 6),
        ]
        assert (found.total_capacity, found.total_available) == (20, 15)

    @pytest.mark.parametrize("stored", [True, False])
    async def test_the_capacity_counts_entities_whose_calls_bring_their_limits(
        self, world: World, stored: bool
    ) -> None:
        if stored:
            await world.configure(RPM)
        for capacity in (50, 100):
            await world.take(limits=[Limit.per_minute("rpm", capacity)], rpm=10)
        await world.take("other", limits=[RPM], rpm=4)
        found = await world.limiter.get_resource_capacity(API, "rpm")
        # Beside stored limits each limit of calls has a level; without them there is one level.
        left = 90 if stored else 30
        assert [(each.entity_id, each.capacity, each.available) for each in found.entities] == [
            ("other", 10, 6),
            (USER, 100, left),
        ]
        assert (found.total_capacity, found.total_available) == (110, 6 + left)

    async def test_the_capacity_leaves_out_buckets_without_the_limit(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=4)
        await world.take("other", limits=[TPM], tpm=7)
        found = await world.limiter.get_resource_capacity(API, "rpm")
        assert [(each.entity_id, each.available) for each in found.entities] == [(USER, 6)]

    async def test_a_refused_first_acquire_leaves_no_bucket(self, world: World) -> None:
        await world.configure(RPM)
        for number in range(10):
            await world.refusal(f"visitor-{number}", rpm=11)
        assert await world.repo.get_resource_buckets(API) == []

    async def test_the_capacity_of_an_unused_resource_is_zero(self, world: World) -> None:
        found = await world.limiter.get_resource_capacity(API, "rpm")
        assert (found.total_capacity, found.total_available, found.entities) == (0, 0, [])
        assert found.utilization_pct == 0

    async def test_a_bucket_can_be_read_under_the_limits_in_force(self, world: World) -> None:
        budget, own = Limit.budget("usd", "5.00", per="month"), Limit.per_minute("rpm", 3)
        await world.configure(RPM, budget)
        await world.take(rpm=4, usd="4.50")  # type: ignore[arg-type]
        async with world.limiter.acquire(USER, API, {"rpm": 1}, limits=[own]):
            pass
        await world.configure(
            Limit.per_minute("rpm", 20), Limit.budget("usd", "50.00", per="month"), TPM
        )
        stored = await world.repo.get_buckets(USER, API)
        assert _levels(stored) == {10: 6, 5: Decimal("0.50"), 3: 2}
        found = await world.repo.get_bucket_in_force(USER, API)
        assert _levels(found) == {20: 6, 50: Decimal("45.50"), 3: 2}
        await world.take(rpm=0)
        assert _levels(await world.repo.get_buckets(USER, API)) == {**_levels(found), 100: 100}
        unused = await world.repo.get_bucket_in_force("unused", API)
        assert _levels(unused) == {20: 20, 50: 50, 100: 100}

    async def test_a_reset_fills_every_limit_and_forgives_debts(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=10) as lease:
            await lease.adjust(tpm=500)
        await world.repo.reset_bucket(USER, API)
        assert (await world.tokens("rpm"), await world.tokens("tpm")) == (10, 100)
        await world.take(rpm=10, tpm=100)
        await world.refusal(rpm=1)

    async def test_the_event_of_a_reset_tells_what_was_forgiven(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=10) as lease:
            await lease.adjust(tpm=500)
        world.clock.advance(seconds=3)
        await world.repo.reset_bucket(USER, API)
        (event,) = await world.repo.get_audit_events(USER)
        assert event.details["forgiven_milli"] == {"rpm": 9500, "tpm": 495_000}

    @pytest.mark.parametrize(("amount", "added"), [(3, 3000), (1000, 7500)])
    async def test_the_event_of_a_top_up_tells_what_was_added(
        self, world: World, amount: int, added: int
    ) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=8)
        world.clock.advance(seconds=3)
        await world.repo.top_up(USER, API, {"rpm": amount})
        (event,) = await world.repo.get_audit_events(USER)
        assert event.details == {"amounts": {"rpm": amount}, "added_milli": {"rpm": added}}

    async def test_events_of_resets_and_top_ups_have_money_in_currency_units(
        self, world: World
    ) -> None:
        await world.configure(RPM, Limit.budget("usd", "5.00", per="month"))
        await world.take(rpm=4, usd="4.500000001")  # type: ignore[arg-type]
        top_up: dict[str, Any] = {"rpm": 1, "usd": "2.25"}
        await world.repo.top_up(USER, API, top_up)
        await world.repo.reset_bucket(USER, API)
        forgiven, added = [event.details for event in await world.repo.get_audit_events(USER)]
        assert added == {
            "amounts": {"rpm": 1, "usd": "2.25"},
            "added_milli": {"rpm": 1000},
            "added_money": {"usd": "2.25"},
        }
        assert forgiven == {
            "forgiven_milli": {"rpm": 3000},
            "forgiven_money": {"usd": "2.250000001"},
        }

    async def test_the_event_of_a_budget_that_is_topped_up_before_its_first_use_has_money(
        self, world: World
    ) -> None:
        await world.configure(Limit.budget("usd", "5.00", per="month"))
        top_up: dict[str, Any] = {"usd": 3}
        await world.repo.top_up(USER, API, top_up)
        (event,) = await world.repo.get_audit_events(USER)
        assert event.details == {"amounts": {"usd": 3}, "added_money": {"usd": "3.00"}}

    async def test_a_reset_or_top_up_that_adds_nothing_is_not_logged(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=8)
        await world.repo.top_up(USER, API, {"rpm": 0, "tpm": 5})
        assert await world.repo.get_audit_events(USER) == []
        await world.repo.reset_bucket(USER, API)
        await world.repo.reset_bucket(USER, API)
        await world.repo.top_up(USER, API, {"rpm": 3})
        (event,) = await world.repo.get_audit_events(USER)
        assert event.details["forgiven_milli"] == {"rpm": 8000, "tpm": 0}

    async def test_a_reset_fills_no_other_bucket(self, world: World) -> None:
        await world.configure(RPM)
        for entity_id, resource in ((USER, API), (USER, "other"), ("user-2", API)):
            await world.take(entity_id, resource, rpm=10)
        await world.repo.reset_bucket(USER, API)
        assert await world.tokens("rpm", USER, "other") == 0
        assert await world.tokens("rpm", "user-2") == 0

    async def test_a_top_up_adds_tokens(self, world: World) -> None:
        await world.configure(RPM, TPM)
        await world.take(rpm=8, tpm=50)
        await world.repo.top_up(USER, API, {"rpm": 3})
        assert (await world.tokens("rpm"), await world.tokens("tpm")) == (5, 50)

    async def test_a_top_up_repays_a_debt(self, world: World) -> None:
        await world.configure(RPM)
        await world.owe(rpm=15)
        await world.repo.top_up(USER, API, {"rpm": 3})
        assert await world.tokens() == -2

    @pytest.mark.parametrize("idle_days", [0, 100])
    async def test_a_top_up_ends_at_the_capacity(self, world: World, idle_days: int) -> None:
        await world.configure(RPM)
        await world.take(rpm=2)
        world.clock.advance(days=idle_days)
        await world.repo.top_up(USER, API, {"rpm": 1000})
        await world.take(rpm=10)
        await world.refusal(rpm=1)

    async def test_resets_and_top_ups_leave_the_consumption_counted(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=8)
        await world.repo.top_up(USER, API, {"rpm": 3})
        await world.repo.reset_bucket(USER, API)
        state = await world.repo.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.total_consumed_milli == 8000

    async def test_mending_a_bucket_that_does_not_exist_does_not_make_one(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.repo.reset_bucket(USER, API)
        await world.repo.top_up(USER, API, {"rpm": 3})
        assert await world.repo.get_buckets(USER) == []
        await world.take(rpm=10)
        await world.refusal(rpm=1)

    @for_each("amounts", [{}, {"rpm": -1}, {"rpm": 1.5}, {"rpm": True}, None, "rpm"])
    async def test_a_top_up_of_anything_but_whole_tokens_is_refused(
        self, world: World, amounts: dict[str, int]
    ) -> None:
        await world.configure(RPM)
        user = f"user of {amounts}"
        await world.take(user, rpm=5)
        with pytest.raises(ValidationError) as caught:
            await world.repo.top_up(user, API, amounts)
        assert caught.value.field.startswith("amounts")
        assert await world.tokens("rpm", user) == 5

    async def test_a_top_up_of_an_unknown_limit_is_refused_and_adds_nothing(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.take(rpm=5)
        with pytest.raises(ValidationError) as caught:
            await world.repo.top_up(USER, API, {"rpm": 1, "tpm": 1})
        assert caught.value.value == "tpm"
        assert await world.tokens() == 5
        events = await world.repo.get_audit_events(USER)
        assert events == []

    async def test_buckets_are_read_by_their_keys(self, world: World) -> None:
        await world.configure(RPM, TPM)
        for entity_id in "abc":
            await world.take(entity_id, rpm=1)
        wanted = [("c", API), ("nobody", API), ("a", API), ("c", API)]
        states = await world.repo.read_buckets(wanted)
        assert [(each.entity_id, each.limit_name, each.tokens) for each in states] == [
            ("c", "rpm", 9),
            ("c", "tpm", 100),
            ("a", "rpm", 9),
            ("a", "tpm", 100),
        ]
        assert await world.repo.read_buckets([]) == []

    async def test_entries_of_a_listing_have_the_levels_of_their_buckets(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        for entity_id in "abc":
            await world.take(entity_id, rpm=1)
        listed, cursor, first = [], None, True
        while first or cursor is not None:
            entries, cursor = await world.repo.list_bucket_entries(2, cursor)
            listed += entries
            first = False
        decoded = {entry.entity_id: entry.states(world.clock()) for entry in listed}
        read = {each: await world.repo.get_buckets(each) for each in "abc"}
        assert decoded == read

    async def test_the_revision_of_an_entry_changes_with_its_bucket(self, world: World) -> None:
        await world.configure(RPM)
        await world.take("a", rpm=1)
        await world.take("b", rpm=1)
        before = await _revisions(world)
        assert await _revisions(world) == before
        await world.take("b", rpm=1)
        after = await _revisions(world)
        assert after["a"] == before["a"]
        assert after["b"] is None or after["b"] != before["b"]


async def _revisions(world: World) -> dict[str, int | None]:
    entries, _ = await world.repo.list_bucket_entries()
    return {entry.entity_id: entry.revision for entry in entries}
