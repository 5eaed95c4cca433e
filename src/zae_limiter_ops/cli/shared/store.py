"""The store that a command works on. A mistyped name creates nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urlencode

import click

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.naming import DEFAULT_NAMESPACE, DEFAULT_STACK
from zae_limiter.store_url import StoreUrl, parse_url
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.views.advice import did_you_mean

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.settings import Provision

# Longer than the library's 2 s: at a shell, a late answer is better than an error. A command that
# gets no answer must end within 5 s, of which the start of the interpreter takes a part.
REQUEST_TIMEOUT_S = 3.0


StackPlace: TypeAlias = tuple[str, str | None, str | None]  # name, region, endpoint


class StoreLocation(NamedTuple):
    """The store and namespace that the options and the environment name; not opened yet."""

    url: str | None = None  # None if nothing is named: the default stack
    namespace: str | None = None

    def open(
        self,
        *,
        create: bool = False,
        provision: Provision = "never",
        timeout_s: float = REQUEST_TIMEOUT_S,
        config_cache_ttl: float = 0,
    ) -> SyncRepository:
        """Open the store. A missing namespace is an error.

        A missing file is an error, too, unless ``create`` is set. A command that runs for long may
        keep limits for ``config_cache_ttl`` seconds.
        """
        from zae_limiter._sync.repository import SyncRepository

        is_new = self._check_file(create)
        builder = SyncRepository.builder().namespace(self.namespace).url(self.url)
        builder.provision(provision).config_cache_ttl(config_cache_ttl)
        builder.request_timeout(timeout_s)
        try:
            repository = builder.build()
        except NamespaceNotFoundError as error:
            suggestion = did_you_mean(error.namespace, self._namespaces())
            if not suggestion:
                raise
            raise click.ClickException(
                f"namespace {error.namespace!r} is not registered{suggestion}"
            ) from None
        if is_new:
            click.echo(f"note: new store {self._parsed_url().place!r}", err=True)
        return repository

    def registry(self, *, create: bool = False, create_table: bool = False) -> SyncRepository:
        """Open the store for commands that concern all namespaces."""
        if create_table and self._parsed_url().engine != "dynamodb":
            raise click.UsageError("--create-table is for DynamoDB; leave it out")
        location = self._replace(namespace=DEFAULT_NAMESPACE)
        return location.open(create=create, provision="table" if create_table else "never")

    @property
    def missing_file(self) -> str | None:
        """The SQLite file of the store if it does not exist and its folder does."""
        parsed = self._parsed_url()
        path = Path(parsed.place)
        is_creatable = parsed.engine == "sqlite" and path.absolute().parent.is_dir()
        return parsed.place if is_creatable and not path.exists() else None

    @property
    def has_stack(self) -> bool:
        """Whether the store is a table, which may be part of a stack."""
        return self._parsed_url().engine == "dynamodb"

    def stack(self) -> StackPlace:
        """Return name, region and endpoint of the stack, for commands about stacks."""
        parsed = self._parsed_url()
        if parsed.engine != "dynamodb":
            raise click.UsageError(
                f"{parsed.engine} stores have no stack; name one: --name, or unset ZAEL_URL"
            )
        options = parsed.options
        return parsed.place, options.get("region"), options.get("endpoint_url")

    def _namespaces(self) -> list[str]:
        with self.registry() as repository:
            return [namespace.name for namespace in repository.list_namespaces()]

    def _parsed_url(self) -> StoreUrl:
        return parse_url(self.url or f"dynamodb://{DEFAULT_STACK}")

    def _check_file(self, create: bool) -> bool:
        """Raise if a SQLite file is missing and must not be created; tell whether it is missing."""
        parsed = self._parsed_url()
        if parsed.engine == "memory" and create:
            click.echo("note: memory:// forgets everything when this command ends", err=True)
        if parsed.engine != "sqlite" or Path(parsed.place).exists():
            return False
        if not create:
            raise click.ClickException(
                f"no store at {parsed.place!r}; check --url (or ZAEL_URL), or create one: "
                f"{suggested('namespace', 'register', DEFAULT_NAMESPACE)}"
            )
        return True


def resolve_url(url: str | None, stack_options: Mapping[str, str | None]) -> str | None:
    """Return the store's URL; None if nothing is named. Options win over the environment.

    ``stack_options`` are ``stack``, ``region`` and ``endpoint_url``.
    """
    env_stack = os.environ.get("ZAEL_STACK")
    if not any(stack_options.values()) and (url or not env_stack):
        return url
    keys = ("region", "endpoint_url")
    query_options = {key: stack_options[key] for key in keys if stack_options.get(key)}
    query = f"?{urlencode(query_options)}" if query_options else ""
    return f"dynamodb://{stack_options.get('stack') or env_stack or DEFAULT_STACK}{query}"
