"""Which store a command works on, and how it is opened: nothing is made by a mistyped name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Store:
    """What the options and the environment say; nothing is opened yet."""

    url: str | None = None
    stack: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    namespace: str | None = None

    def open(self, *, create: bool = False) -> SyncRepository:
        """Open it. A missing file is made only with ``create``, a missing namespace never."""
        from zae_limiter._sync.repository import SyncRepository

        self._look(create)
        builder = SyncRepository.builder().namespace(self.namespace).url(self.url)
        builder.stack(self.stack).region(self.region).endpoint_url(self.endpoint_url)
        return builder.provision("never").config_cache_ttl(0).build()

    def registry(self, *, create: bool = False) -> SyncRepository:
        """Open it for commands that concern all namespaces."""
        whole = Store(self.url, self.stack, self.region, self.endpoint_url, DEFAULT_NAMESPACE)
        return whole.open(create=create)

    def _look(self, create: bool) -> None:
        from zae_limiter.store_url import parse_url

        if self.url is None:
            return
        place = parse_url(self.url)
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
