"""Which store a command works on, and how it is opened: nothing is made by a mistyped name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from zae_limiter.cli.groups import did_you_mean

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.store_url import StoreUrl

DEFAULT_NAMESPACE = "default"
DEFAULT_STACK = "zae-limiter"
PATIENCE_S = 5.0  # for a store that does not answer; programs have less


class Store(NamedTuple):
    """What the options and the environment say; nothing is opened yet."""

    url: str | None = None  # none: nothing is named, so it is the default stack
    namespace: str | None = None

    def open(
        self, *, create: bool = False, provision: str = "never", timeout_s: float = PATIENCE_S
    ) -> SyncRepository:
        """Open it. A missing file is made only with ``create``, a missing namespace never."""
        from zae_limiter._sync.repository import SyncRepository
        from zae_limiter.exceptions import NamespaceNotFoundError

        self._look(create)
        builder = SyncRepository.builder().namespace(self.namespace).url(self.url)
        builder.provision(provision).config_cache_ttl(0).request_timeout(timeout_s)
        try:
            return builder.build()
        except NamespaceNotFoundError as error:
            near = did_you_mean(error.namespace, self._namespaces())
            if not near:
                raise
            raise click.ClickException(
                f"namespace {error.namespace!r} is not registered{near}"
            ) from None

    def registry(self, *, create: bool = False, create_table: bool = False) -> SyncRepository:
        """Open it for commands that concern all namespaces."""
        if create_table and self._place().engine != "dynamodb":
            raise click.UsageError("--create-table is for DynamoDB; leave it out")
        whole = self._replace(namespace=DEFAULT_NAMESPACE)
        return whole.open(create=create, provision="table" if create_table else "never")

    def _namespaces(self) -> list[str]:
        with self.registry() as repository:
            return [each.name for each in repository.list_namespaces()]

    def _place(self) -> StoreUrl:
        from zae_limiter.store_url import parse_url

        return parse_url(self.url or f"dynamodb://{DEFAULT_STACK}")

    def _look(self, create: bool) -> None:
        from pathlib import Path

        place = self._place()
        if place.engine == "memory" and create:
            click.echo("note: memory:// forgets everything when this command ends", err=True)
        if place.engine != "sqlite" or Path(place.place).exists():
            return
        if not create:
            raise click.ClickException(
                f"no store at {place.place!r}; check --url (or ZAEL_URL), or make one: "
                f"zae-limiter namespace register {DEFAULT_NAMESPACE} --url {self.url}"
            )
        if Path(place.place).absolute().parent.is_dir():
            click.echo(f"note: new store {place.place!r}", err=True)


def place_of(url: str | None, given: Mapping[str, str | None]) -> str | None:
    """The store's URL; None if nothing is named. The command line wins over the environment.

    ``given`` are the options ``stack``, ``region`` and ``endpoint_url``.
    """
    named = os.environ.get("ZAEL_STACK")
    if not any(given.values()) and (url or not named):
        return url
    from urllib.parse import urlencode

    options = {key: given[key] for key in ("region", "endpoint_url") if given.get(key)}
    query = f"?{urlencode(options)}" if options else ""
    return f"dynamodb://{given.get('stack') or named or DEFAULT_STACK}{query}"
