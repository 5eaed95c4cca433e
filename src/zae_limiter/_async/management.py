"""The base of the limiter: the methods of its repository, and the opening of the repository."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from zae_limiter._async import operations
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.config_reads import landed, raise_for_waiter
from zae_limiter.clock import Clock, check_clock
from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.runtime.locks import SignalSafeLock
from zae_limiter.runtime.single_flight import Flight, SingleFlight
from zae_limiter.runtime.waiter import AWaiter
from zae_limiter.settings import Settings, check_policy
from zae_limiter.store_url import masked_url

if TYPE_CHECKING:
    from zae_limiter.models.stack import LimiterInfo

OPENING_S = 600.0  # creating a table takes seconds, deploying a stack minutes

P = ParamSpec("P")
T = TypeVar("T")

DEPRECATED = {
    "name": "Repository.open(stack=...)",
    "region": "Repository.open(region=...)",
    "endpoint_url": "Repository.open(endpoint_url=...)",
    "stack_options": "Repository.builder()",
    "on_unavailable": "Repository.builder().on_unavailable(...)",
    "auto_update": "Repository.open(auto_update=...)",
    "bucket_ttl_refill_multiplier": "Repository.builder().bucket_ttl_multiplier(...)",
}
# Deprecated keywords that are settings of another name.
SETTINGS = {"name": "stack", "bucket_ttl_refill_multiplier": "bucket_ttl_multiplier"}
# Two options that a limiter may have together with other options of its own store. Alone, or with
# a repository, they are deprecated keywords. All other options of a store are refused together with
# a repository.
DEPRECATED_ALONE = frozenset({"on_unavailable", "auto_update"})


def _of_repository(
    method: Callable[Concatenate[Repository, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Management, P], Coroutine[Any, Any, T]]:
    """Return the same method for a limiter; it calls the limiter's repository."""

    @functools.wraps(method)
    async def call(self: Management, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(self._repository or await self._opened(), *args, **kwargs)

    return call


class Management:
    """Base of the limiter: entities, limits, audit and usage, as in its repository."""

    create_entity = _of_repository(Repository.create_entity)
    ensure_entity = _of_repository(Repository.ensure_entity)
    get_entity = _of_repository(Repository.get_entity)
    delete_entity = _of_repository(Repository.delete_entity)
    get_children = _of_repository(Repository.get_children)
    set_parent = _of_repository(Repository.set_parent)
    list_entities = _of_repository(Repository.list_entities)
    list_resources = _of_repository(Repository.list_resources)
    set_limits = _of_repository(Repository.set_limits)
    get_limits = _of_repository(Repository.get_limits)
    delete_limits = _of_repository(Repository.delete_limits)
    set_resource_defaults = _of_repository(Repository.set_resource_defaults)
    get_resource_defaults = _of_repository(Repository.get_resource_defaults)
    delete_resource_defaults = _of_repository(Repository.delete_resource_defaults)
    list_resources_with_defaults = _of_repository(Repository.list_resources_with_defaults)
    set_system_defaults = _of_repository(Repository.set_system_defaults)
    get_system_defaults = _of_repository(Repository.get_system_defaults)
    delete_system_defaults = _of_repository(Repository.delete_system_defaults)
    list_entities_with_custom_limits = _of_repository(Repository.list_entities_with_custom_limits)
    list_resources_with_entity_configs = _of_repository(
        Repository.list_resources_with_entity_configs
    )
    resolve_limits = _of_repository(Repository.resolve_limits)
    set_mode = _of_repository(Repository.set_mode)
    get_mode = _of_repository(Repository.get_mode)
    resolve_mode = _of_repository(Repository.resolve_mode)
    pause = _of_repository(Repository.pause)
    get_resource_capacity = _of_repository(Repository.get_resource_capacity)
    get_audit_events = _of_repository(Repository.get_audit_events)
    get_usage_snapshots = _of_repository(Repository.get_usage_snapshots)
    get_usage_summary = _of_repository(Repository.get_usage_summary)
    get_top_usage = _of_repository(Repository.get_top_usage)

    def __init__(
        self,
        repository: Repository | None,
        clock: Clock | None,
        store_options: dict[str, Any],
        deprecated: dict[str, Any],
    ) -> None:
        """Take the given keywords: the options of an own store, and deprecated keywords."""
        to_replace = set(deprecated)
        opens_own = repository is None and bool(store_options.keys() - DEPRECATED_ALONE)
        if not opens_own:
            to_replace |= DEPRECATED_ALONE & store_options.keys()
        for name in sorted(to_replace):
            warnings.warn(
                f"RateLimiter({name}=...) is deprecated; use {DEPRECATED[name]}",
                DeprecationWarning,
                stacklevel=3,
            )
        if repository is not None and not isinstance(repository, Repository):
            raise ValidationError(
                "repository",
                repository,
                "must be an open Repository; url= takes the URL of a store",
            )
        self._store_options = store_options
        self._deprecated = deprecated
        self._unopened = None if repository is None or repository.is_open else repository
        self._owned = repository is None
        self._clock = None if clock is None else check_clock(clock)
        self._policy = check_policy(store_options.get("on_unavailable"))
        self._repository: Repository | None = None
        self._closings = 0  # counts `close`, so that a store whose opening ends later is not kept
        if store_options:
            self._check_options(repository)
        if repository is not None and self._unopened is None:  # otherwise the first call opens it
            self._repository = repository.with_settings(
                None, deprecated.get("bucket_ttl_refill_multiplier"), self._clock
            )
        self._lock = SignalSafeLock()
        self._openings: SingleFlight[Repository] = SingleFlight(OPENING_S)

    def _check_options(self, repository: Repository | None) -> None:
        """Raise ValidationError for a wrong URL or option at once, before the first use."""
        if repository is None:
            from zae_limiter._async.open import check_settings

            check_settings(self._settings())
            return
        for name, value in self._store_options.items():
            if name not in DEPRECATED_ALONE:
                raise ValidationError(
                    name, value, "is for a limiter that opens its own store; leave repository= out"
                )

    @classmethod
    async def list_deployed(
        cls, region: str | None = None, endpoint_url: str | None = None
    ) -> list[LimiterInfo]:
        """Return every limiter that is deployed in a region, sorted by name."""
        return await operations.list_deployed(region, endpoint_url)

    @property
    def repository(self) -> Repository | None:
        """The repository; None until a limiter with its own store is first used, see ``open``."""
        return self._repository

    async def open(self) -> Repository:
        """Return the repository, and open it if it is not open yet."""
        return self._repository or await self._opened()

    @property
    def name(self) -> str:
        """The name of the stack; deprecated, ``repository.stack_name`` has it."""
        _warn_of_property("name", "repository.stack_name")
        return self._stack_name()

    @property
    def stack_name(self) -> str:
        """The name of the stack; deprecated, ``repository.stack_name`` has it."""
        _warn_of_property("stack_name", "repository.stack_name")
        return self._stack_name()

    @property
    def table_name(self) -> str:
        """The name of the DynamoDB table, the same as that of the stack; deprecated."""
        _warn_of_property("table_name", "repository.stack_name")
        return self._stack_name()

    def _stack_name(self) -> str:
        """Return the name of the stack, or of the one that the first use would open."""
        if self._repository is not None:
            return self._repository.stack_name
        if self._unopened is not None:
            return self._unopened.stack_name
        from zae_limiter._async.open import stack_to_open

        return stack_to_open(self._deprecated.get("name"), self._store_options.get("url"))

    def _unopened_store(self) -> str:
        """Describe a repository that is not open yet."""
        url = self._store_options.get("url")
        return f"opens {masked_url(url) if url else 'its repository'} on first use"

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the repository if this limiter has opened it; the next use opens it again.

        ``timeout`` is that of ``Repository.close``.
        """
        if not self._owned:
            return
        with self._lock:
            self._closings += 1
            repository, self._repository = self._repository, None
        if repository is not None:
            await repository.close(timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _opened(self) -> Repository:
        """Open the repository on first use; calls that come meanwhile wait for it.

        A call that began before ``close`` gets the closed repository. Only later calls open it
        again.
        """
        with self._lock:
            closings = self._closings
        while (repository := self._repository) is None:
            flight, waiter = self._openings.join("repository", closings, AWaiter)
            if waiter is None or not await landed(self._openings, flight, waiter, None):
                return await self._open(flight, closings)
            if flight.error is not None:
                raise_for_waiter(flight.error)
            if flight.result is not None:
                return flight.result
        return repository

    async def _open(self, flight: Flight[Repository], closings: int) -> Repository:
        repository: Repository | None = None
        failure: Exception | None = None
        try:
            repository = await self._build()
        except Exception as error:
            failure = error
            self._name_store(error)
            raise
        finally:
            with self._lock:
                is_kept = self._closings == closings
                if is_kept and self._repository is None:
                    self._repository = repository
                winner = self._repository if is_kept else repository
            self._openings.land(flight, winner, failure)
        assert winner is not None
        # The limiter was closed meanwhile, or another call took over this slow opening.
        if not is_kept or winner is not repository:
            await repository.close()
        return winner

    def _name_store(self, error: Exception) -> None:
        """Add the URL that could not be opened to an error."""
        url = self._store_options.get("url")
        if url is not None and isinstance(error, ZAELimiterError):
            error.args = (f"cannot open {masked_url(url)}: {error}",)

    async def _build(self) -> Repository:
        """Open the repository as the options, the environment and deprecated keywords say."""
        if self._unopened is not None:
            if not self._unopened.is_open:
                await self._unopened.ensure_infrastructure()
            return self._unopened.with_settings(clock=self._clock)
        from zae_limiter._async.open import open_repository

        return await open_repository(self._settings())

    def _settings(self) -> Settings:
        """Return the settings of the own store. The outage policy stays with the limiter."""
        given = {
            SETTINGS.get(name, name): value
            for name, value in (self._store_options | self._deprecated).items()
            if name != "on_unavailable"
        }
        return Settings(register=True).given(**given, clock=self._clock)


def _warn_of_property(name: str, instead: str) -> None:
    warnings.warn(
        f"RateLimiter.{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3
    )
