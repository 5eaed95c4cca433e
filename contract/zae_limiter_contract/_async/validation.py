"""Wrong arguments are refused by name, before anything is charged or changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit, LimitName
from zae_limiter_contract import bad_input
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

RPM = bad_input.RPM


class ValidationContract(Contract):
    """Ids, names, amounts and limits are checked, and the old order of arguments works."""

    @pytest.fixture
    async def ready(self, world: World) -> World:
        """A world with ten tokens a minute, two of which are taken."""
        await world.configure(RPM)
        await world.take(rpm=2)
        return world

    @for_each("entity_id", bad_input.ENTITY_IDS)
    async def test_bad_entity_ids_are_refused(self, ready: World, entity_id: Any) -> None:
        repo, limiter = ready.repo, ready.limiter
        await _refused(
            "entity_id",
            lambda: ready.take(entity_id, rpm=1),
            lambda: limiter.available(entity_id, API),
            lambda: limiter.check_availability(entity_id, API),
            lambda: repo.create_entity(entity_id),
            lambda: repo.get_entity(entity_id),
            lambda: repo.delete_entity(entity_id),
            lambda: repo.set_limits(entity_id, [RPM]),
            lambda: repo.get_limits(entity_id),
            lambda: repo.delete_limits(entity_id),
            lambda: repo.resolve_limits(entity_id, API),
            lambda: repo.get_bucket(entity_id, API, "rpm"),
            lambda: repo.get_buckets(entity_id),
            lambda: repo.reset_bucket(entity_id, API),
            lambda: repo.top_up(entity_id, API, {"rpm": 1}),
            lambda: repo.pause(entity_id, API, 1),
        )
        assert len(await repo.get_resource_buckets(API)) == 1

    @for_each("resource", bad_input.RESOURCES)
    async def test_bad_resources_are_refused(self, ready: World, resource: Any) -> None:
        repo, limiter = ready.repo, ready.limiter
        await _refused(
            "resource",
            lambda: ready.take(USER, resource, rpm=1),
            lambda: limiter.available(USER, resource),
            lambda: limiter.get_resource_capacity(resource, "rpm"),
            lambda: repo.set_resource_defaults(resource, [RPM]),
            lambda: repo.get_resource_defaults(resource),
            lambda: repo.delete_resource_defaults(resource),
            lambda: repo.resolve_limits(USER, resource),
            lambda: repo.get_bucket(USER, resource, "rpm"),
            lambda: repo.get_resource_buckets(resource),
            lambda: repo.reset_bucket(USER, resource),
            lambda: repo.top_up(USER, resource, {"rpm": 1}),
            lambda: repo.pause(USER, resource, 1),
        )
        if resource != "_default_":
            await _refused(
                "resource",
                lambda: repo.set_limits(USER, [RPM], resource),
                lambda: repo.list_entities_with_custom_limits(resource),
            )

    @for_each(("consume", "field"), bad_input.CONSUMES)
    async def test_bad_amounts_are_refused_and_nothing_is_taken(
        self, ready: World, consume: Any, field: str
    ) -> None:
        with _refusal_of(field):
            async with ready.limiter.acquire(USER, API, consume):
                pass
        assert await ready.tokens() == 8

    async def test_bad_amounts_in_questions_are_refused(self, ready: World) -> None:
        for needed, field in bad_input.NEEDS:
            await _refused(
                field,
                partial(ready.limiter.check_availability, USER, API, needed),
                partial(ready.limiter.time_until_available, USER, API, needed),
            )

    async def test_an_amount_of_text_is_named_as_it_was_given(self, ready: World) -> None:
        limiter: Any = ready.limiter
        for given in ("1", "1.50", Decimal("0.25")):
            shown = f"the limit is no budget (got '{given}')"
            for call in (
                lambda given=given: limiter.acquire(USER, API, {"rpm": given}).__aenter__(),
                lambda given=given: limiter.check_availability(USER, API, {"rpm": given}),
                lambda given=given: ready.repo.top_up(USER, API, {"rpm": given}),
            ):
                with pytest.raises(ValidationError) as caught:
                    await call()
                assert str(caught.value).endswith(shown)
            async with limiter.acquire(USER, API, {"rpm": 1}) as lease:
                for change in (lease.adjust, lease.settle, lease.consume):
                    with pytest.raises(ValidationError) as caught:
                        await change(rpm=given)
                    assert str(caught.value).endswith(shown)

    @for_each("limits", bad_input.LIMITS)
    async def test_bad_lists_of_limits_are_refused_and_nothing_changes(
        self, ready: World, limits: Any
    ) -> None:
        repo = ready.repo
        await _refused(
            "limits",
            lambda: ready.take(limits=limits, rpm=1),
            lambda: ready.limiter.available(USER, API, limits),
            lambda: repo.set_limits(USER, limits),
            lambda: repo.set_resource_defaults(API, limits),
            lambda: repo.set_system_defaults(limits),
        )
        assert await repo.get_system_defaults() == ([RPM], None)
        assert await ready.tokens() == 8

    @for_each("field", ["capacity", "refill_amount", "refill_period_seconds"])
    @for_each("value", bad_input.POSITIVE)
    async def test_a_limit_is_made_of_positive_whole_numbers(self, field: str, value: Any) -> None:
        numbers = {"capacity": 1, "refill_amount": 1, "refill_period_seconds": 1, field: value}
        with _refusal_of(f"limit.{field}"):
            Limit(name="rpm", **numbers)

    @for_each("name", bad_input.LIMIT_NAMES)
    async def test_bad_names_of_limits_are_refused(self, ready: World, name: Any) -> None:
        with _refusal_of("limit.name"):
            Limit.per_minute(name, 10)
        await _refused(
            "limit_name",
            lambda: ready.repo.get_bucket(USER, API, name),
            lambda: ready.limiter.get_resource_capacity(API, name),
        )

    @for_each(("arguments", "field"), bad_input.ENTITIES)
    async def test_bad_entities_are_refused_and_not_created(
        self, world: World, arguments: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            await world.repo.create_entity("key", **arguments)
        assert caught.value.field.partition(".")[0] == field
        assert await world.repo.get_entity("key") is None

    @for_each("name", bad_input.NAMESPACES)
    async def test_bad_namespaces_are_refused(self, world: World, name: Any) -> None:
        repo = world.repo
        await _refused(
            "namespace",
            lambda: repo.register_namespace(name),
            lambda: repo.register_namespaces(["fine", name]),
            lambda: repo.namespace(name),
            lambda: repo.get_namespace(name),
            lambda: repo.delete_namespace(name),
        )
        assert [each.name for each in await repo.list_namespaces()] == ["default"]

    @for_each("namespace_id", bad_input.NAMESPACE_IDS)
    async def test_bad_ids_of_namespaces_are_refused(self, world: World, namespace_id: Any) -> None:
        await _refused(
            "namespace_id",
            lambda: world.repo.recover_namespace(namespace_id),
            lambda: world.repo.purge_namespace(namespace_id),
        )

    @for_each("policy", bad_input.POLICIES)
    async def test_bad_outage_policies_are_refused(self, ready: World, policy: Any) -> None:
        repo = ready.repo
        with _refusal_of("on_unavailable"):
            ready.limiter.acquire(USER, API, {"rpm": 1}, on_unavailable=policy)
        await _refused(
            "on_unavailable",
            lambda: repo.set_system_defaults([RPM], policy),
            lambda: repo.namespace("default", on_unavailable=policy),
        )
        assert await repo.get_system_defaults() == ([RPM], None)

    @for_each("principal", bad_input.PRINCIPALS)
    async def test_bad_principals_are_refused_and_nothing_changes(
        self, ready: World, principal: Any
    ) -> None:
        repo = ready.repo
        await _refused(
            "principal",
            lambda: repo.create_entity(USER, principal=principal),
            lambda: repo.delete_entity(USER, principal),
            lambda: repo.set_limits(USER, [RPM], principal=principal),
            lambda: repo.delete_limits(USER, principal=principal),
            lambda: repo.set_resource_defaults(API, [RPM], principal),
            lambda: repo.delete_resource_defaults(API, principal),
            lambda: repo.set_system_defaults([RPM], principal=principal),
            lambda: repo.delete_system_defaults(principal),
            lambda: repo.reset_bucket(USER, API, principal),
            lambda: repo.top_up(USER, API, {"rpm": 1}, principal),
        )
        assert await repo.get_audit_events(USER) == []
        assert await ready.tokens() == 8

    @for_each("multiplier", bad_input.TTL_MULTIPLIERS)
    async def test_a_bucket_ttl_multiplier_is_a_whole_number(
        self, world: World, multiplier: Any
    ) -> None:
        await _refused(
            "bucket_ttl_multiplier",
            lambda: world.repo.namespace("default", bucket_ttl_multiplier=multiplier),
        )
        with pytest.warns(DeprecationWarning, match="ttl"), pytest.raises(ValidationError):
            RateLimiter(world.repo, bucket_ttl_refill_multiplier=multiplier)

    @for_each("entity_id", bad_input.ENTITY_IDS)
    async def test_bad_ids_of_parents_are_refused(self, world: World, entity_id: Any) -> None:
        await _refused("parent_id", lambda: world.repo.get_children(entity_id))

    @for_each("position", [5, b"a", ["a"], 1.5])
    async def test_bad_positions_of_pages_are_refused(self, world: World, position: Any) -> None:
        user = f"user of {position}"
        await world.repo.create_entity(user)
        await _refused(
            "start_event_id", lambda: world.repo.get_audit_events(user, start_event_id=position)
        )
        await _refused(
            "cursor", lambda: world.repo.list_entities_with_custom_limits(API, cursor=position)
        )

    @for_each("names", ["red", 5, None])
    async def test_names_of_namespaces_are_given_as_a_list(self, world: World, names: Any) -> None:
        await _refused("names", lambda: world.repo.register_namespaces(names))

    @for_each("limit", [0, -1, 1.5, True, "1"])
    async def test_bad_page_sizes_are_refused(self, world: World, limit: Any) -> None:
        await _refused(
            "limit",
            lambda: world.repo.list_entities_with_custom_limits(API, limit),
            lambda: world.repo.get_audit_events(USER, limit),
        )

    async def test_the_old_order_of_arguments_works_and_warns(self, world: World) -> None:
        arguments: list[Any] = [USER, API, [RPM], {"rpm": 4}]
        with pytest.warns(DeprecationWarning, match="consume"):
            acquire = world.limiter.acquire(*arguments)
        async with acquire as lease:
            assert lease.consumed == {"rpm": 4}
        assert await world.tokens() == 6

    async def test_names_of_the_enumeration_are_names_of_limits(self, world: World) -> None:
        await world.configure(Limit.per_minute(LimitName.RPM, 10))
        async with world.limiter.acquire(USER, API, {LimitName.RPM: 4}) as lease:
            assert lease.consumed == {"rpm": 4}
        assert await world.tokens("rpm") == 6

    async def test_the_caller_s_mappings_and_lists_are_not_kept(self, world: World) -> None:
        limits, consume = [RPM], {"rpm": 4}
        acquire = world.limiter.acquire(USER, API, consume, limits)
        consume["rpm"] = 9
        limits.clear()
        async with acquire as lease:
            consume["rpm"] = 9
            assert lease.consumed == {"rpm": 4}
        assert await world.tokens() == 6


@contextmanager
def _refusal_of(field: str) -> Iterator[None]:
    with pytest.raises(ValidationError) as caught:
        yield
    assert caught.value.field == field
    assert caught.value.reason
    assert caught.value.field in str(caught.value)


async def _refused(field: str, *calls: Callable[[], Awaitable[object]]) -> None:
    for call in calls:
        with _refusal_of(field):
            await call()
