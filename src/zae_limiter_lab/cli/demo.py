"""``zae-limiter demo``: simulated traffic on a real limiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
from click.core import ParameterSource

from zae_limiter_ops.cli.shared.console import make_console, print_json
from zae_limiter_ops.cli.shared.errors import DONE, FAILED, Interrupted
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.param_types import Seconds
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.views.formatting import format_number

if TYPE_CHECKING:
    from zae_limiter._async.repository import Repository
    from zae_limiter_lab.cli.demo_view import View
    from zae_limiter_lab.demo.traffic import DemoOptions, DemoRun
    from zae_limiter_ops.cli.shared.store import StoreLocation

PAGE_SECONDS = 600.0  # with a page, unless --seconds says otherwise
MAX_TENANTS = 50  # about 900 callers that try up to 6,000 calls per second


@click.command()
@click.option(
    "--seconds",
    type=Seconds(0.1, 3600),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Duration of the traffic in seconds.",
)
@click.option(
    "--tenants",
    type=click.IntRange(1, MAX_TENANTS),
    default=4,
    show_default=True,
    help="Number of projects, with two keys each.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Random seed of the simulated calls.",
)
@click.option(
    "--dashboard",
    "with_page",
    is_flag=True,
    help="Show the traffic on a page in a browser, for ten minutes unless --seconds is given.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the page of --dashboard.")
@registry_options
@output_option
@click.pass_context
def demo(
    ctx: click.Context,
    store: StoreLocation,
    seconds: float,
    tenants: int,
    seed: int,
    with_page: bool,
    opens: bool,
    output: str,
) -> None:
    """Watch the limiter at work on simulated LLM traffic.

    Tenants call a model with their keys. Each call charges one request and its estimated tokens
    to the key and to its project, or to neither, and settles the true cost afterwards. At the
    end a log kept by the callers is checked: in every window of time, each limit may have
    admitted at most its capacity, its refill and the tokens that were given back.

    The data is kept in a temporary SQLite file, or in a temporary namespace of the store that
    is named, and removed afterwards. Exits with 1 if a limit admitted too much.

    \b
    Examples:
      zae-limiter demo
      zae-limiter demo --seconds 5 --tenants 8
      zae-limiter demo --dashboard
      zae-limiter demo --url memory:// --output json
      zae-limiter demo --name my-stack --endpoint-url http://localhost:8000

    JSON: engine, options, seconds, acquires, acquires_per_second, admitted, limited, adjusted,
    failed, entities (each: entity_id, parent_id, admitted, limited, adjusted, failed, limits),
    invariant (holds, limits, windows, debts_checked, violations).
    """
    from zae_limiter_lab.cli.demo_view import view_for
    from zae_limiter_lab.demo.traffic import DemoOptions

    as_json = output == "json"
    if with_page and ctx.get_parameter_source("seconds") is ParameterSource.DEFAULT:
        seconds = PAGE_SECONDS
    show_page = partial(_served_page, store.url, opens=opens) if with_page else no_page
    view = view_for(make_console(stderr=as_json), silent=as_json)
    try:
        run = _run(store.url, DemoOptions(seconds, tenants, seed), view, show_page)
    except KeyboardInterrupt:
        raise Interrupted(_so_far(view.run)) from None
    ctx.exit(report_result(run, output))


def report_result(run: DemoRun, output: str) -> int:
    """Print the result and return the exit code."""
    from zae_limiter_lab.cli import demo_report

    if output == "json":
        print_json(demo_report.result_json(run))
    else:
        demo_report.print_report(make_console(), run)
    return FAILED if run.violations else DONE


def no_page(_repository: Repository) -> AbstractContextManager[None]:
    """Serve no page."""
    return nullcontext()


@contextmanager
def _served_page(url: str | None, repository: Repository, *, opens: bool) -> Iterator[None]:
    """Serve the operator's page on the demo's namespace while the block runs."""
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_dashboard.cli import announce, import_server
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_ops.views.advice import GivenOptions

    if url == "memory://":
        raise click.UsageError("the page shares the store: name it, such as memory://demo")
    place = url or f"sqlite:///{quote(repository.stack_name)}"
    namespace = repository.namespace_name
    given = GivenOptions()
    given.store, given.namespace = ("--url", place), ("--namespace", namespace)
    server = import_server().DashboardServer(
        lambda: SyncRepository.open(namespace, url=place, provision="never"),
        DashboardSettings(allow_edit=True),  # everything here is thrown away at the end
        given,
        namespace,
        is_port_named=False,
    )
    thread = server.start()
    try:
        announce(server.url, server.settings, opens=opens)
        yield
    finally:
        server.stop()
        thread.join(5)


def _run(
    url: str | None,
    options: DemoOptions,
    view: View,
    show_page: Callable[[Repository], AbstractContextManager[None]],
) -> DemoRun:
    import asyncio

    from zae_limiter_lab.cli.demo_view import title_of
    from zae_limiter_lab.demo.run import demo_repository, run_demo

    async def run() -> DemoRun:
        async with demo_repository(url) as repository:
            with show_page(repository):
                view.begin(title_of(repository.capabilities.engine, options))
                try:
                    return await run_demo(repository, options, view.show, view.every_seconds)
                finally:
                    view.close()

    return asyncio.run(run())


def _so_far(run: DemoRun | None) -> str:
    if run is None:
        return "before any traffic; nothing is left behind"
    total = run.total
    calls = f"{format_number(total.admitted)} admitted, {format_number(total.limited)} limited"
    return f"after {run.seconds:.1f} s: {calls}; nothing is left behind"
