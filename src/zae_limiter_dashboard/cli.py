"""``zae-limiter dashboard``: the operator's page in a browser."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.views.advice import GivenOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation

DEFAULTS = DashboardSettings()
CONFIG_CACHE_S = 5.0  # the page shows changes of others within this time


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.port,
    show_default=True,
    help="Port of the page, 0 for any free one; without this option, the next free one.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the page in a browser.")
@click.option("--allow-edit", is_flag=True, help="Allow changes; otherwise the page is read-only.")
@click.option(
    "--host",
    default=DEFAULTS.host,
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on; others than this machine's need --certificate or --behind-proxy.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate for TLS, in PEM form; it may contain the key.",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Key of the certificate, if it is a file of its own.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy in front of the page speaks TLS. The token is needed all the same.",
)
@click.option(
    "--public-host",
    "public_hosts",
    multiple=True,
    metavar="NAME",
    help="Host name under which browsers reach the page; may be repeated.",
)
@click.option(
    "--principal-header",
    metavar="HEADER",
    help="Header in which the proxy names the user, for the audit log.",
)
@click.option(
    "--manifest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Manifest that the page compares with the store.",
)
@store_options
@click.pass_context
def dashboard(
    ctx: click.Context,
    store: StoreLocation,
    port: int,
    opens: bool,
    allow_edit: bool,
    host: str,
    certificate: Path | None,
    key: Path | None,
    behind_proxy: bool,
    public_hosts: tuple[str, ...],
    principal_header: str | None,
    manifest: Path | None,
) -> None:
    """Open a page that shows who is limited, by which limit and until when.

    The page is served on this machine until Ctrl-C. The printed link contains a token, which the
    browser exchanges for a session; without it, every request is refused. Changes need
    --allow-edit, are confirmed one by one, and are logged with the user of the system.

    \b
    Examples:
      zae-limiter dashboard --url sqlite:///limits.db
      zae-limiter dashboard --name my-app --allow-edit --no-open
      zae-limiter dashboard --behind-proxy --public-host limits.example.com
    """
    server_module = import_server()
    given = ctx.find_object(GivenOptions) or GivenOptions()
    settings = DashboardSettings(
        host=host,
        port=port,
        allow_edit=allow_edit,
        behind_proxy=behind_proxy,
        certificate=certificate,
        key=key,
        public_hosts=public_hosts,
        principal_header=principal_header,
        manifest=manifest,
    )
    check(ctx, settings)
    is_port_named = ctx.get_parameter_source("port") is not ParameterSource.DEFAULT

    def open_store() -> SyncRepository:
        return store.open(config_cache_ttl=CONFIG_CACHE_S)

    namespace = _checked_namespace(open_store) or store.namespace or DEFAULT_NAMESPACE
    server = server_module.DashboardServer(
        open_store, settings, given, namespace, is_port_named=is_port_named
    )
    announce(server.url, server.settings, opens=opens)
    server.run()


def _checked_namespace(open_store: Callable[[], SyncRepository]) -> str | None:
    """Return the name of the namespace; a wrong name or a missing store is told here.

    None stands for a store that does not answer. The page is served all the same: it says so, and
    comes back with the store.
    """
    try:
        with open_store() as repository:
            return repository.namespace_name
    except RateLimiterUnavailable as error:
        click.echo(f"note: {error}; the page shows this until the store answers", err=True)
        return None


def check(ctx: click.Context, settings: DashboardSettings) -> None:
    """Name the option with a wrong value, before a store is opened."""
    try:
        settings.check()
    except ValidationError as error:
        [option] = [each for each in ctx.command.params if each.name == error.field]
        raise click.BadParameter(f"{error.value!r} {error.reason}", ctx, option) from error


def import_server() -> ModuleType:
    """Import the server; say which extra it needs if that is not installed."""
    try:
        from zae_limiter_dashboard import server
    except ImportError as error:
        from zae_limiter.extras import needs

        text = needs("the page", f"the package {error.name!r}", "dashboard")
        raise click.ClickException(text) from error
    return server


def announce(url: str, settings: DashboardSettings, *, opens: bool) -> None:
    """Print the link on a line of its own, and open it."""
    click.echo(f"dashboard at {url}")
    mode = "changes are allowed" if settings.allow_edit else "read-only; --allow-edit for changes"
    click.echo(f"({mode}; Ctrl-C ends it)", err=True)
    if opens:
        from zae_limiter_dashboard.server import open_browser

        open_browser(url)
