"""Methods of the repository that store limits and resolve the limits in force."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.admission.in_force import InForce
from zae_limiter.exceptions import LimitsChangedError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.config import (
    KEEP,
    ConfigLevel,
    ConfigSource,
    Keep,
    LevelChange,
    LevelConfig,
    OnUnavailable,
    OutagePolicy,
    SupersededLimit,
)
from zae_limiter.models.limit import MAX_LIMITS, Limit, check_limits, check_positive, places_of
from zae_limiter.models.switches import Switch, SwitchMode, SwitchName, switch_of
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    check_bool,
    check_cursor,
    check_entity_id,
    check_principal,
    check_resource,
    check_resource_or_default,
)

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter.admission.configuration import Revised
    from zae_limiter.models.backend import CacheStats

MAX_PAGE = 10**6  # bounds the memory of a page, and is a number that every store accepts
MERGE_ATTEMPTS = 20  # each other change of the level in between costs one
NONE = ""  # stands for no entity or no resource in the name of a configuration level


class LimitMethods(RepositoryMixin):
    """Store the limits of entities, resources and the system."""

    # --- entities

    async def set_limits(
        self,
        entity_id: str,
        limits: Iterable[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        *,
        if_missing: bool = False,
        replaces: Iterable[Limit] | None = None,
        merge: bool = False,
    ) -> bool:
        """Replace an entity's limits on a resource, or by default on all without own limits.

        With ``if_missing``, limits that are already stored stay as they are. This is for start-up
        code, which must not overwrite the settings of an operator. Return whether anything has
        changed; a no-op is not logged. With ``replaces``, LimitsChangedError is raised and nothing
        is stored unless exactly these limits are stored, so that nobody's change is overwritten
        unseen; an empty list stands for none. If the bucket of this resource has no room for the
        limits beside earlier ones that are not full, ValidationError is raised and nothing is
        stored.

        With ``merge``, the limits in force stay, and only those of the same names are replaced.
        Without it, ``superseded_limits`` tells which limits in force no longer apply.
        """
        level = ConfigLevel(check_entity_id(entity_id), check_resource_or_default(resource))
        change = LevelChange(
            level, check_limits(limits), if_missing=if_missing, replaces=_replaced(replaces)
        )
        return await self._set(change, principal, merge)

    async def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the limits stored for exactly this entity and resource; an empty list if none."""
        config = await self._get(check_entity_id(entity_id), check_resource_or_default(resource))
        return list(config.limits) if config else []

    async def delete_limits(
        self,
        entity_id: str,
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        *,
        replaces: Iterable[Limit] | None = None,
    ) -> None:
        """Delete an entity's limits, so that the next configuration level applies.

        With ``replaces``, LimitsChangedError is raised unless exactly these limits are stored.
        """
        level = ConfigLevel(check_entity_id(entity_id), check_resource_or_default(resource))
        await self._delete(level, principal, replaces)

    # --- resources

    async def set_resource_defaults(
        self,
        resource: str,
        limits: Iterable[Limit],
        principal: str | None = None,
        *,
        if_missing: bool = False,
        replaces: Iterable[Limit] | None = None,
        merge: bool = False,
    ) -> bool:
        """Set the limits on a resource for all entities that have no limits of their own.

        With ``if_missing``, defaults that are already stored stay as they are. With ``replaces``,
        LimitsChangedError is raised unless exactly these limits are stored. With ``merge``, the
        limits in force stay, and only those of the same names are replaced. Return whether anything
        has changed.
        """
        level = ConfigLevel(NONE, check_resource(resource))
        change = LevelChange(
            level, check_limits(limits), if_missing=if_missing, replaces=_replaced(replaces)
        )
        return await self._set(change, principal, merge)

    async def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the default limits of a resource; an empty list if it has none."""
        config = await self._get(NONE, check_resource(resource))
        return list(config.limits) if config else []

    async def delete_resource_defaults(
        self,
        resource: str,
        principal: str | None = None,
        *,
        replaces: Iterable[Limit] | None = None,
    ) -> None:
        """Delete the default limits of a resource, so that the system's limits apply.

        With ``replaces``, LimitsChangedError is raised unless exactly these limits are stored.
        """
        await self._delete(ConfigLevel(NONE, check_resource(resource)), principal, replaces)

    async def list_resources_with_defaults(self) -> list[str]:
        """Return the names of resources that have default limits."""
        return await self._context.engine.configs.resources_with_defaults(
            self._context.namespace_id
        )

    # --- system

    async def set_system_defaults(
        self,
        limits: Iterable[Limit],
        on_unavailable: OutagePolicy | Keep | None = KEEP,
        principal: str | None = None,
        *,
        if_missing: bool = False,
        replaces: Iterable[Limit] | None = None,
        merge: bool = False,
    ) -> bool:
        """Set the limits that apply if there are no others, and the outage policy.

        The limits are replaced as a whole. A stored ``on_unavailable`` is kept unless one is
        given; None removes it. With ``if_missing``, stored limits and a stored ``on_unavailable``
        stay as they are, even if only one of them is stored. With ``replaces``, LimitsChangedError
        is raised unless exactly these limits are stored. With ``merge``, the stored limits stay,
        and only those of the same names are replaced. Return whether anything has changed.
        """
        if on_unavailable is not None and not isinstance(on_unavailable, Keep):
            on_unavailable = OnUnavailable.parse(on_unavailable)
        change = LevelChange(
            ConfigLevel(),
            check_limits(limits),
            on_unavailable,
            if_missing=if_missing,
            replaces=_replaced(replaces),
        )
        return await self._set(change, principal, merge)

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits and the outage policy of the system, or an empty list and None."""
        config = await self._get(NONE, NONE)
        return (list(config.limits), config.on_unavailable) if config else ([], None)

    async def delete_system_defaults(
        self, principal: str | None = None, *, replaces: Iterable[Limit] | None = None
    ) -> None:
        """Delete the limits and the outage policy of the system.

        With ``replaces``, LimitsChangedError is raised unless exactly these limits are stored.
        """
        await self._delete(ConfigLevel(), principal, replaces)

    # --- across configuration levels

    async def list_entities_with_custom_limits(
        self, resource: str, limit: int | None = None, cursor: str | None = None
    ) -> tuple[list[str], str | None]:
        """Return a page of entity ids, and the cursor of the next page (None at the end)."""
        if limit is not None:
            check_positive(limit, "limit")
        check_cursor(cursor)
        entity_ids = await self._context.engine.configs.configured_entities(
            self._context.namespace_id,
            check_resource_or_default(resource),
            cursor or NONE,
            None if limit is None else min(limit, MAX_PAGE) + 1,
        )
        if limit is None or len(entity_ids) <= limit:
            return entity_ids, None
        return entity_ids[:limit], entity_ids[limit - 1]

    async def list_resources_with_entity_configs(self) -> list[str]:
        """Return the names of resources on which entities have limits of their own."""
        return await self._context.engine.configs.resources_with_entity_configs(
            self._context.namespace_id
        )

    async def resolve_limits(
        self, entity_id: str, resource: str
    ) -> tuple[list[Limit] | None, OnUnavailable | None, ConfigSource | None]:
        """Return the limits in force, the system's outage policy, and the level of the limits."""
        resolved = await self.charging.resolve(
            check_entity_id(entity_id), check_resource(resource), self._context.clock()
        )
        in_force = resolved.in_force
        if in_force is None:
            return None, resolved.on_unavailable, None
        return list(in_force.limits), resolved.on_unavailable, in_force.source

    async def get_limits_in_force(
        self, entity_id: str | None = None, resource: str | None = None
    ) -> tuple[list[Limit], ConfigSource | None]:
        """Return the limits that apply at a configuration level, and the level that has them.

        Without limits of its own, those of the next level apply. For an entity without a resource
        (all resources on which it has no other limits) the result is an empty list and None if they
        differ by resource.
        """
        level = _level(entity_id, resource)
        for source, place in await self._levels_from(level):
            config = await self._get(*place)
            if config is not None and config.limits:
                return list(config.limits), source
        return [], None

    async def superseded_limits(
        self,
        limits: Iterable[Limit],
        entity_id: str | None = None,
        resource: str | None = None,
    ) -> list[SupersededLimit]:
        """Return the limits in force that would no longer apply if ``limits`` were set at a level.

        The level is an entity on a resource or on all others, a resource, or the system.
        """
        kept = {limit.name for limit in check_limits(limits)}
        level = _level(entity_id, resource)
        places: list[tuple[str | None, ConfigLevel]] = [(resource, level)]
        if level.entity_id and level.resource == DEFAULT_RESOURCE:
            places = [(None, level)]
            if await self._get(*level) is None:
                places = await self._places_without_own(level.entity_id)
        found = []
        for name, place in places:
            in_force, source = await self.get_limits_in_force(*place)
            if source is not None:
                found += [
                    SupersededLimit(limit, source, name)
                    for limit in in_force
                    if limit.name not in kept
                ]
        return found

    async def _places_without_own(self, entity_id: str) -> list[tuple[str | None, ConfigLevel]]:
        """Return the levels whose limits apply to an entity without limits for all resources."""
        places: list[tuple[str | None, ConfigLevel]] = []
        for name in await self.list_resources_with_defaults():
            own = await self._get(entity_id, name)
            if own is None or not own.limits:
                places.append((name, ConfigLevel(NONE, name)))
        return [*places, (None, ConfigLevel())]

    async def _levels_from(self, level: ConfigLevel) -> list[tuple[ConfigSource, ConfigLevel]]:
        """Return a level and those whose limits apply without its own, the strongest first."""
        entity_id, resource = level
        system = (ConfigSource.SYSTEM, ConfigLevel())
        if entity_id and resource == DEFAULT_RESOURCE:
            own = (ConfigSource.ENTITY_DEFAULT, level)
            return [own] if await self.list_resources_with_defaults() else [own, system]
        chain = [(ConfigSource.RESOURCE, ConfigLevel(NONE, resource))] if resource else []
        if entity_id:
            any_resource = ConfigLevel(entity_id, DEFAULT_RESOURCE)
            chain = [
                (ConfigSource.ENTITY, level),
                (ConfigSource.ENTITY_DEFAULT, any_resource),
                *chain,
            ]
        return [*chain, system]

    async def _merge(self, change: LevelChange, principal: str | None) -> bool:
        """Store the limits in force at a level with those of ``change`` among them.

        If others are stored meanwhile, they are merged, too.
        """
        if change.replaces is not None:
            raise ValidationError("replaces", None, "has no meaning with merge=True; leave it out")
        check_bool(change.if_missing, "if_missing")
        level, added = change.level, change.limits
        assert not isinstance(added, Keep), "a change of limits brings some"
        for is_last in (*[False] * MERGE_ATTEMPTS, True):
            config = await self._get(*level)
            stored = config.limits if config is not None else ()
            if change.if_missing and stored:
                return False
            in_force, source = await self.get_limits_in_force(*level)
            if source is None and level.resource == DEFAULT_RESOURCE:
                await self._check_alike(level)
            merged = _merged(stored or tuple(in_force), added)
            try:
                return await self._store(
                    change._replace(limits=merged, if_missing=False, replaces=stored), principal
                )
            except LimitsChangedError:
                if is_last:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _check_alike(self, level: ConfigLevel) -> None:
        """Raise if the limits in force for an entity without a resource differ by resource."""
        if await self.list_resources_with_defaults():
            raise ValidationError(
                "resource",
                level.resource,
                "names no single set of limits: those in force differ by resource; name a resource",
            )

    # --- switches

    async def set_mode(
        self,
        resource: str | None = None,
        entity_id: str | None = None,
        mode: SwitchName | None = "enforce",
        until: datetime | float | str | None = None,
        principal: str | None = None,
    ) -> bool:
        """Set the mode of a resource, or of an entity on one resource or (None) on all of them.

        ``enforce`` is the usual mode. ``shadow`` charges calls and rejects none, ``bypass`` only
        counts their usage, and ``deny`` rejects all of them. The mode ends at ``until``, a datetime
        or seconds since 1970; without it, the mode stays until it is changed. ``deny`` wins over
        every other mode; otherwise the mode of an entity wins over that of a resource. None removes
        a mode. ``enforce`` on a resource does the same, since it is the mode of every resource.

        A change counts at once in this process, and within ``config_cache_ttl`` in all others.
        Return whether anything has changed.
        """
        level = _switched_level(resource, entity_id)
        switch, context = switch_of(mode, until), self._context
        now_ms, author = context.clock(), check_principal(principal)
        if switch is not None and switch.is_over(now_ms):
            raise ValidationError("until", until, "is over already; choose a later moment")
        if switch is not None and switch.mode is SwitchMode.ENFORCE and not entity_id:
            if switch.until_ms is not None:
                reason = "has no meaning here: enforce is the mode of every resource"
                raise ValidationError("until", until, reason)
            switch = None
        change = LevelChange(level, KEEP, KEEP, switch)
        return (await self._write(change, now_ms, author)).is_changed

    async def get_mode(
        self, resource: str | None = None, entity_id: str | None = None
    ) -> Switch | None:
        """Return the mode that is set for exactly this resource or entity; None if none is.

        The mode of an entity on all resources is that with ``resource=None``. A mode that has ended
        is returned until it is changed; ``resolve_mode`` returns the mode that counts.
        """
        config = await self._get(*_switched_level(resource, entity_id))
        return None if config is None else config.switch

    async def resolve_mode(
        self, entity_id: str, resource: str
    ) -> tuple[SwitchMode, datetime | None, ConfigSource | None]:
        """Return the mode of a bucket now, its end, and the level that it comes from."""
        now_ms = self._context.clock()
        resolved = await self.charging.resolve(
            check_entity_id(entity_id), check_resource(resource), now_ms
        )
        current = None if resolved.switches is None else resolved.switches.at(now_ms)
        if current is None:
            return SwitchMode.ENFORCE, None, None
        source, switch = current
        return switch.mode, switch.until, source

    async def invalidate_config_cache(self) -> None:
        """Empty the cache, so that changes of other clients take effect at once."""
        self._context.cache.clear()

    def get_cache_stats(self) -> CacheStats:
        """Return hits, misses, size and TTL of the cache of limits."""
        return self._context.cache.stats()

    # --- one configuration level

    async def _get(self, entity_id: str, resource: str) -> LevelConfig | None:
        return await self._context.engine.configs.get(
            self._context.namespace_id, entity_id, resource
        )

    async def _set(self, change: LevelChange, principal: str | None, merge: bool) -> bool:
        """Set the limits of a level; return whether anything has changed."""
        if merge:
            return await self._merge(change, principal)
        return await self._store(change, principal)

    async def _store(self, change: LevelChange, principal: str | None) -> bool:
        await self._check_fits(change)
        check_principal(principal)
        check_bool(change.if_missing, "if_missing")
        revised = await self._write(change, self._context.clock(), principal)
        return revised.is_changed

    async def _delete(
        self, level: ConfigLevel, principal: str | None, replaces: Iterable[Limit] | None
    ) -> None:
        change = LevelChange(level, (), replaces=_replaced(replaces))
        await self._write(change, self._context.clock(), check_principal(principal))

    async def _write(
        self, change: LevelChange, now_ms: int, principal: str | None
    ) -> Revised[LevelConfig]:
        context, level = self._context, change.level
        try:
            revised = await context.engine.configs.change(
                context.namespace_id, change, now_ms=now_ms, principal=principal
            )
        finally:  # even if cancelled, since the change may be committed
            self._evict(level.entity_id)
        if level.is_system:
            policy = None if revised.after is None else revised.after.on_unavailable
            context.cache.set_policy(context.namespace_id, policy)
        return revised

    async def _check_fits(self, change: LevelChange) -> None:
        """Raise here instead of in the next acquire if buckets have no room for new limits."""
        (entity_id, resource), limits = change.level, change.limits
        assert not isinstance(limits, Keep), "a change of limits brings some"
        if not entity_id or resource == DEFAULT_RESOURCE:
            await self._check_replacement(change.level, limits, change.if_missing)
        elif not change.if_missing or (
            not _fit_beside_any(limits) and await self._get(entity_id, resource) is None
        ):
            await self._check_room(change.level, limits)

    async def _check_room(self, level: ConfigLevel, limits: tuple[Limit, ...]) -> None:
        """Raise if the bucket of an entity on a resource has no room for these limits."""
        from zae_limiter.admission.statuses import under_limits  # not needed to open a repository

        context = self._context
        image = await context.engine.buckets.get(context.namespace_id, *level, context.clock)
        under_limits(image, InForce(limits, ConfigSource.ENTITY, 1), context.clock())

    async def _check_replacement(
        self, level: ConfigLevel, limits: tuple[Limit, ...], if_missing: bool
    ) -> None:
        """Raise if buckets may have no room for these limits beside those in force now.

        Defaults concern too many buckets to look at.
        """
        if _fit_beside_any(limits):
            return
        from zae_limiter.admission.rebase import check_replacement

        with suppress(RateLimiterUnavailable):  # a damaged level is written anew
            before = await self._get(*level)
            if before is not None and if_missing:
                return
            if before is None and level.resource and not level.entity_id:
                before = await self._get(NONE, NONE)
            check_replacement(before.limits if before else (), limits)

    def _evict(self, entity_id: str) -> None:
        if entity_id:
            self._context.cache.evict(self._context.namespace_id, entity_id)
        else:
            self._context.cache.clear()


def _level(entity_id: str | None, resource: str | None) -> ConfigLevel:
    """Return the level of an entity, a resource, both, or neither."""
    if not entity_id:
        return ConfigLevel(NONE, check_resource(resource) if resource else NONE)
    on_resource = DEFAULT_RESOURCE if not resource else check_resource_or_default(resource)
    return ConfigLevel(check_entity_id(entity_id), on_resource)


def _merged(before: Iterable[Limit], added: Iterable[Limit]) -> tuple[Limit, ...]:
    """Return the limits before, with those of the same names replaced and the others added."""
    return tuple({limit.name: limit for limit in (*before, *added)}.values())


def _switched_level(resource: str | None, entity_id: str | None) -> ConfigLevel:
    """Return the level at which a mode is stored."""
    if entity_id is None:
        if resource is None:
            raise ValidationError("resource", None, "name a resource, an entity_id, or both")
        return ConfigLevel(NONE, check_resource(resource))
    on_resource = DEFAULT_RESOURCE if resource is None else check_resource_or_default(resource)
    return ConfigLevel(check_entity_id(entity_id), on_resource)


def _fit_beside_any(limits: tuple[Limit, ...]) -> bool:
    """Tell whether a bucket has room for these limits beside those of any one level."""
    from zae_limiter.admission.rebase import MAX_STORED  # not needed to open a repository

    return sum(map(places_of, limits)) <= MAX_STORED - MAX_LIMITS


def _replaced(limits: Iterable[Limit] | None) -> tuple[Limit, ...] | None:
    """Return the limits that a change replaces; an empty tuple stands for a level without any."""
    if limits is None:
        return None
    before = tuple(limits)
    return check_limits(before, "replaces") if before else ()
