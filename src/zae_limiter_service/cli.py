"""``zae-limiter serve``: limits for programs in other languages, over HTTP and gRPC."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.exceptions import ValidationError
from zae_limiter_ops.cli.shared.param_types import Seconds
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_service.settings import ServiceSettings

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation

DEFAULTS = ServiceSettings()
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
YAML_FILE = click.Path(dir_okay=False, path_type=Path)  # read by check_files, which names mistakes


@click.command()
@click.option(
    "--host",
    default=DEFAULTS.host,
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.port,
    show_default=True,
    help="Port of HTTP, 0 for any free one.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="Port of Envoy's rate limit protocol, 0 for any free one; without it, HTTP alone.",
)
@click.option(
    "--tokens", type=YAML_FILE, help="File with the SHA-256 of tokens, roles and namespaces."
)
@click.option(
    "--no-auth",
    is_flag=True,
    help="Ask for no token; only for a service on this machine.",
)
@click.option("--certificate", type=FILE, help="Certificate for TLS, in PEM form.")
@click.option("--key", type=FILE, help="Key of the certificate, if it is a file of its own.")
@click.option("--client-ca", type=FILE, help="Authority whose certificates clients may show.")
@click.option("--rules", type=YAML_FILE, help="File that maps descriptors of Envoy to limits.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=DEFAULTS.workers,
    show_default=True,
    help="Processes that serve; more than one needs a store that processes share.",
)
@click.option(
    "--advertise", metavar="URL", help="URL at which other hosts and clients reach this one."
)
@click.option("--dashboard", is_flag=True, help="Serve the operator's page at /.")
@click.option(
    "--access-log",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Log each request as a line of JSON; - for stdout.",
)
@click.option("--telemetry", is_flag=True, help="Send metrics and spans to OpenTelemetry.")
@click.option(
    "--max-leases",
    type=click.IntRange(1, 1_000_000),
    default=DEFAULTS.max_leases,
    show_default=True,
    help="Open leases of a worker, beyond which 503 is answered.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1, 100_000),
    default=DEFAULTS.max_requests,
    show_default=True,
    help="Requests of a worker that run or wait, beyond which 503 is answered.",
)
@click.option(
    "--drain",
    "drain_s",
    type=Seconds(0, 3600),
    default=DEFAULTS.drain_s,
    show_default=True,
    help="Seconds for clients to settle their leases when the service stops.",
)
@store_options
@click.pass_context
def serve(ctx: click.Context, /, store: StoreLocation, **options: Any) -> None:
    """Serve leases over HTTP, and Envoy's rate limit protocol over gRPC.

    The service answers on this machine until Ctrl-C or SIGTERM. Callers need a token, or a
    certificate with --client-ca; --no-auth does without on this machine. Its description in
    OpenAPI is at /v1/openapi.json.

    \b
    Examples:
      zae-limiter serve --url sqlite:///limits.db --no-auth
      zae-limiter serve --name my-app --tokens tokens.yaml --workers 4
      zae-limiter serve --url sqlite:///limits.db --no-auth --grpc-port 8081 --rules envoy.yaml
    """
    check_extras(has_grpc=options["grpc_port"] is not None, has_page=options["dashboard"])
    settings = ServiceSettings(**options, url=store.url, namespace=store.namespace)
    check(ctx, settings)
    with store.open() as repository:  # a wrong name or a missing store is told here
        settings = replace(settings, namespace=repository.namespace_name)
    check_files(settings)
    run(settings)


def check(ctx: click.Context, settings: ServiceSettings) -> None:
    """Name the option with a wrong value, before a store is opened."""
    try:
        settings.check()
    except ValidationError as error:
        [option] = [each for each in ctx.command.params if each.name == error.field]
        shown = "" if error.value is None else f"{error.value!r} "
        raise click.BadParameter(f"{shown}{error.reason}", ctx, option) from error


def check_files(settings: ServiceSettings) -> None:
    """Read the files once, so that a mistake is told with its line before anything is served."""
    try:
        if settings.tokens is not None:
            from zae_limiter_service.access import read_access

            read_access(settings.tokens)
        if settings.rules is not None:
            from zae_limiter_service.envoy.rules import read_rules

            read_rules(settings.rules)
    except ValidationError as error:
        raise click.ClickException(str(error)) from error


def check_extras(*, has_grpc: bool, has_page: bool) -> None:
    """Say which extra is missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise _missing("the service", error, "service") from error
    try:
        if has_grpc:
            import grpc  # noqa: F401
            from envoy.service.ratelimit.v3 import rls_pb2  # noqa: F401
    except ImportError as error:
        raise _missing("Envoy's protocol", error, "envoy") from error
    try:
        if has_page:
            import jinja2  # noqa: F401
    except ImportError as error:
        raise _missing("the page", error, "dashboard") from error


def _missing(part: str, error: ImportError, extra: str) -> click.ClickException:
    from zae_limiter.extras import needs

    return click.ClickException(needs(part, f"the package {error.name!r}", extra))


def run(settings: ServiceSettings) -> None:
    """Bind the sockets, say where the service is, and serve until a signal comes."""
    from zae_limiter_service.launch import launch

    launch(settings, click.echo)
