"""A change of one limit must not remove the others unseen."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World
from zae_limiter_contract.together import agather

RPM, TPM, TPD = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 90), Limit.per_day("tpd", 5)
FASTER = Limit.per_minute("rpm", 20)


class ReplacedLimitsContract(Contract):
    """Limits are merged on request; what a change removes can be asked before and after."""

    async def test_a_merge_keeps_the_limits_in_force(self, world: World) -> None:
        repo = world.repo
        await repo.set_system_defaults([RPM, TPM])
        assert await repo.set_resource_defaults(API, [FASTER], merge=True) is True
        assert await repo.get_resource_defaults(API) == [FASTER, TPM]
        assert await repo.set_limits(USER, [TPD], API, merge=True) is True
        assert await repo.get_limits(USER, API) == [FASTER, TPM, TPD]
        assert await repo.set_limits(USER, [TPD], API, merge=True) is False
        assert await repo.set_system_defaults([TPD], "allow", merge=True) is True
        assert await repo.get_system_defaults() == ([RPM, TPM, TPD], "allow")
        await repo.set_limits("other", [TPM])
        await repo.set_limits("other", [TPD], API, merge=True)
        assert await repo.get_limits("other", API) == [TPM, TPD]
        await repo.set_limits("other", [RPM], merge=True)
        assert await repo.get_limits("other") == [TPM, RPM]

    async def test_a_merge_that_only_sets_missing_limits_keeps_stored_ones(
        self, world: World
    ) -> None:
        repo = world.repo
        await repo.set_system_defaults([RPM, TPM])
        assert await repo.set_limits(USER, [TPD], API, merge=True, if_missing=True) is True
        assert await repo.set_limits(USER, [FASTER], API, merge=True, if_missing=True) is False
        assert await repo.get_limits(USER, API) == [RPM, TPM, TPD]

    async def test_a_merge_for_all_resources_needs_one_set_of_limits(self, world: World) -> None:
        repo = world.repo
        await repo.set_system_defaults([RPM])
        await repo.set_limits(USER, [TPM], merge=True)
        assert await repo.get_limits(USER) == [RPM, TPM]
        await repo.set_resource_defaults(API, [TPM])
        with pytest.raises(ValidationError, match="differ by resource"):
            await repo.set_limits("other", [TPD], merge=True)
        assert await repo.get_limits("other") == []

    async def test_a_merge_replaces_no_given_limits(self, world: World) -> None:
        with pytest.raises(ValidationError, match="merge"):
            await world.repo.set_limits(USER, [TPM], merge=True, replaces=[])

    async def test_merges_at_once_lose_nothing(self, world: World) -> None:
        names = [f"limit-{number}" for number in range(5)]
        others = [world.repo]
        if world.spec.shared:
            others += [await world.open(), await world.open()]
        calls = [
            partial(
                others[number % len(others)].set_limits,
                USER,
                [Limit.per_minute(name, 5)],
                API,
                merge=True,
            )
            for number, name in enumerate(names)
        ]
        await agather(calls)
        assert sorted(limit.name for limit in await world.repo.get_limits(USER, API)) == names

    async def test_what_a_change_would_remove_is_told(self, world: World) -> None:
        repo = world.repo
        await repo.set_system_defaults([RPM, TPD])
        await repo.set_resource_defaults(API, [RPM, TPM])
        await repo.set_resource_defaults("other", [RPM, TPM])
        await repo.set_limits(USER, [TPD], "other")

        async def removed(*level: Any) -> list[tuple[str, str, str | None]]:
            found = await repo.superseded_limits([TPM], *level)
            return [(each.limit.name, each.source, each.resource) for each in found]

        assert await removed() == [("rpm", "system", None), ("tpd", "system", None)]
        assert await removed(None, API) == [("rpm", "resource", API)]
        assert await removed(None, "new") == [("rpm", "system", "new"), ("tpd", "system", "new")]
        assert await removed(USER, API) == [("rpm", "resource", API)]
        assert await removed(USER, "other") == [("tpd", "entity", "other")]
        assert await removed(USER) == [
            ("rpm", "resource", API),
            ("rpm", "system", None),
            ("tpd", "system", None),
        ]
        await repo.set_limits(USER, [RPM])
        assert await removed(USER) == [("rpm", "entity_default", None)]
        assert await repo.get_limits_in_force(USER, API) == ([RPM], ConfigSource.ENTITY_DEFAULT)
        assert await repo.get_limits_in_force("nobody", API) == (
            [RPM, TPM],
            ConfigSource.RESOURCE,
        )
        assert await repo.get_limits_in_force("nobody") == ([], None)  # they differ by resource


class RemovedLimitContract(Contract):
    """A call that names a limit which was removed a moment ago is told by whom."""

    async def _error(self, world: World, name: str) -> str:
        with pytest.raises(ValidationError) as caught:
            async with world.limiter.acquire(USER, API, {name: 1}):
                pass
        assert caught.value.field == f"consume.{name}"
        assert type(caught.value) is ValidationError
        return caught.value.reason

    @pytest.mark.parametrize(
        "level", ["entity", "entity default", "resource", "system", "deletion"]
    )
    async def test_the_error_names_who_has_removed_the_limit(
        self, world: World, level: str
    ) -> None:
        repo = world.repo
        await repo.set_system_defaults([TPM] if level == "deletion" else [RPM, TPM])
        if level == "deletion":
            await repo.set_limits(USER, [RPM, TPM], API)
        if level == "resource":
            await repo.set_resource_defaults(API, [RPM, TPM])
        await world.take(rpm=1)
        world.clock.advance(ms=2000)
        if level == "entity":
            await repo.set_limits(USER, [TPM], API, "eve")
        elif level == "entity default":
            await repo.set_limits(USER, [TPM], principal="eve")
        elif level == "resource":
            await repo.set_resource_defaults(API, [TPM], "eve")
        elif level == "system":
            await repo.set_system_defaults([TPM], principal="eve")
        else:
            await repo.delete_limits(USER, API, "eve")
        changed_at = (await repo.get_audit_events(limit=1))[0].timestamp
        world.clock.advance(ms=5000)
        reason = await self._error(world, "rpm")
        assert reason.startswith(f"is not a limit of {API!r}; its limits are tpm; ")
        assert f"'rpm' was removed by eve at {changed_at}" in reason

    async def test_every_kind_of_call_gets_the_error(self, world: World) -> None:
        repo, limiter = world.repo, world.limiter
        await repo.set_system_defaults([RPM, TPM])
        await world.take(rpm=1)
        await repo.set_resource_defaults(API, [TPM], "eve")
        ways: list[dict[str, Any]] = [{"timeout": 1}, {"also": {"other": {"rpm": 1}}}, {}]
        for how in ways:
            with pytest.raises(ValidationError, match="was removed by eve"):
                async with limiter.acquire(USER, API, {"rpm": 1}, **how):
                    pass
        with pytest.raises(ValidationError, match="was removed by eve"):
            async with limiter.acquire(USER, "other", {"rpm": 1}, also={API: {"rpm": 1}}):
                pass
        async with limiter.acquire(USER, API, {"tpm": 1}) as lease:
            with pytest.raises(ValidationError, match="is not a limit of"):
                await lease.consume(rpm=1)
        with pytest.raises(ValidationError, match="was removed by eve"):
            await limiter.check_availability(USER, API, {"rpm": 1})

    async def test_a_limit_that_never_was_is_not_called_removed(self, world: World) -> None:
        await world.repo.set_system_defaults([RPM, TPM])
        await world.repo.set_limits(USER, [TPM], API, "eve")
        reason = await self._error(world, "rmp")
        assert reason == f"is not a limit of {API!r}; its limits are tpm"

    async def test_limits_of_a_call_are_the_business_of_the_caller(self, world: World) -> None:
        await world.repo.set_system_defaults([RPM, TPM])
        await world.repo.set_system_defaults([TPM], principal="eve")
        with pytest.raises(ValidationError) as caught:
            async with world.limiter.acquire(USER, API, {"rpm": 1}, limits=[TPD]):
                pass
        assert caught.value.reason == f"is not a limit of {API!r}; its limits are tpd"

    async def test_an_old_change_is_not_looked_for(self, world: World) -> None:
        await world.repo.set_system_defaults([RPM, TPM])
        await world.repo.set_limits(USER, [TPM], API, "eve")
        world.clock.advance(hours=2)
        reason = await self._error(world, "rpm")
        assert reason == f"is not a limit of {API!r}; its limits are tpm"
