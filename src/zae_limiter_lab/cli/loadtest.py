"""``zae-limiter loadtest run`` and ``tune``: load tests on this machine or on AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_lab.cli.loadtest_options import (
    classes_argument,
    html_option,
    plan_options,
    workers_option,
)
from zae_limiter_lab.cli.loadtest_stack import STACK_COMMANDS
from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.errors import DONE, FAILED, INTERRUPTED, Interrupted, suggested
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.param_types import Seconds
from zae_limiter_ops.cli.shared.store_options import store_options

if TYPE_CHECKING:
    from zae_limiter_lab.cli.loadtest_views import LoadView
    from zae_limiter_lab.loadtest import LoadPlan
    from zae_limiter_lab.loadtest.cloud import LoadTestStack
    from zae_limiter_lab.loadtest.processes import Outcome
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.command(cls=CommandGroup)
def loadtest() -> None:
    """Run load tests with Locust, on this machine or on AWS.

    \b
    Example:
      zae-limiter loadtest run -f locustfiles/simple.py -C examples/locust
    """


for stack_command in STACK_COMMANDS:
    loadtest.add_command(stack_command)


@loadtest.command()
@classes_argument
@plan_options(10, "Number of users, over all workers.", 60, "Duration of the test in seconds.")
@workers_option
@html_option
@click.option(
    "--verify",
    is_flag=True,
    help="Check afterwards, by what the users have counted, that no limit admitted too much and "
    "that usage is right. For a store that holds nothing else; on this machine only.",
)
@store_options
@output_option
def run(
    store: StoreLocation,
    user_classes: tuple[str, ...],
    workers: int | None,
    place: str | None,
    html: Path | None,
    verify: bool,
    output: str,
    **options: Any,
) -> None:
    """Run a load test and report the cause that bounds it.

    Locust runs with a master and workers, each a process of its own. USER_CLASS chooses classes of
    the locustfile; otherwise all of them run. If a load-test stack is deployed for the store, the
    test runs there: in one function, or with --workers in that many, led by a master on Fargate.
    Otherwise it runs on this machine. Without a store, a temporary SQLite file is used.

    Rejections are no failures. Exits with 1 if a call failed, or a worker was lost. Ctrl-C ends
    the test early, with its report.

    \b
    Examples:
      zae-limiter loadtest run -f locustfiles/simple.py -C examples/locust
      zae-limiter loadtest run -n my-app -f max_rps.py --users 100 --workers 2 MaxRpsUser
      zae-limiter loadtest run -f llm_gateway.py --url sqlite:///load.db --output json

    JSON: place, seconds, users, admitted, limited, failures, acquires_per_second,
    writes_per_second, lost_settlements, requests (each: kind, name, requests, failures,
    per_second, p50_ms, p95_ms, p99_ms, max_ms, total_ms), workers, lost_workers, errors, bound,
    bound_reason, machine_cpu, ledger, interrupted.
    """
    from zae_limiter_lab.cli import loadtest_views

    plan = _plan(store, user_classes, workers, options, html=str(html.absolute()) if html else None)
    view = loadtest_views.view_for(output)
    ledger = None
    stack = _stack_to_run_on(store, place)
    if stack is not None:
        if html or verify:
            raise click.UsageError("--html and --verify are for tests on this machine: --local")
        outcome = _run_on_aws(plan, view, stack, distributed=workers is not None)
    else:
        with _local_store(plan, view, verify=verify) as (plan, folder):
            outcome, ledger = _run_locally(plan, view, folder)
    data = loadtest_views.run_json(outcome, "local" if stack is None else "aws", ledger)
    if output == "json":
        print_json(data)
    else:
        loadtest_views.print_run(data)
    click.get_current_context().exit(_exit_code(data, outcome))


@loadtest.command()
@classes_argument
@plan_options(256, "Most users to try.", 5, "Duration of each step in seconds.")
@click.option(
    "--max-latency",
    type=Seconds(0.1, 60_000),
    metavar="MILLISECONDS",
    help="Highest p95 of an acquire; by default, twice that of one user alone.",
)
@store_options
@output_option
def tune(
    store: StoreLocation,
    user_classes: tuple[str, ...],
    max_latency: float | None,
    place: str | None,
    output: str,
    **options: Any,
) -> None:
    """Find the best number of users of one worker.

    The number doubles until acquires get slow, then the interval is halved: the result is the
    largest number of users whose latency is still near that of one user alone.

    \b
    Examples:
      zae-limiter loadtest tune -f locustfiles/max_rps.py -C examples/locust MaxRpsUser
      zae-limiter loadtest tune -n my-app -f max_rps.py MaxRpsCascadeUser

    JSON: place, best_users, per_second, max_latency_ms, steps (each: users, per_second, p50_ms,
    p95_ms, failures, good), lost_workers, interrupted.
    """
    from zae_limiter_lab.cli import loadtest_views

    plan = _plan(store, user_classes, 1, options, mode="tune", max_latency_ms=max_latency)
    view = loadtest_views.view_for(output)
    stack = _stack_to_run_on(store, place)
    if stack is not None:
        outcome = _run_on_aws(plan, view, stack, distributed=False)
    else:
        with _local_store(plan, view) as (plan, folder):
            outcome, _ = _run_locally(plan, view, folder)
    data = loadtest_views.tune_json(outcome, "local" if stack is None else "aws")
    if output == "json":
        print_json(data)
    else:
        loadtest_views.print_tuned(data)
    code = INTERRUPTED if outcome.interrupted else DONE if data["best_users"] else FAILED
    click.get_current_context().exit(code)


def _plan(
    store: StoreLocation,
    user_classes: tuple[str, ...],
    workers: int | None,
    options: dict[str, Any],
    **more: Any,
) -> LoadPlan:
    from zae_limiter.store_url import absolute_url
    from zae_limiter_lab.loadtest import LoadPlan

    return LoadPlan(
        file=options["locustfile"],
        folder=str(options["folder"].absolute()),
        classes=user_classes,
        users=options["users"],
        seconds=options["duration"],
        workers=workers or 1,
        host=absolute_url(store.url) if store.url else None,  # nodes run in the folder of -C
        namespace=store.namespace,
        **more,
    )


def _stack_to_run_on(store: StoreLocation, place: str | None) -> LoadTestStack | None:
    """Return the load-test stack of the named store; None if the test runs on this machine."""
    if place == "local" or (place is None and (store.url is None or not store.has_stack)):
        return None
    from zae_limiter_lab.loadtest.cloud import LoadTestStack

    stack = LoadTestStack(*store.stack())
    if stack.exists(must_answer=place == "aws"):
        return stack
    stack.close()
    if place == "aws":
        raise click.ClickException(
            f"there is no load-test stack for {stack.limiter!r}; deploy it: "
            f"{suggested('loadtest', 'deploy')}"
        )
    return None


def _run_on_aws(
    plan: LoadPlan, view: LoadView, stack: LoadTestStack, *, distributed: bool
) -> Outcome:
    """Run in one function, or with a master and functions; Ctrl-C stops the master."""
    from dataclasses import replace

    from zae_limiter_lab.loadtest.cloud_runs import CloudRuns
    from zae_limiter_lab.loadtest.processes import Outcome

    plan = replace(plan, host=stack.limiter)
    how = "a Fargate master and functions" if distributed else "one function"
    view.begin(plan, stack.limiter, f"on AWS, stack {stack.name}, {how}")
    runs = CloudRuns(stack)
    try:
        with view:
            if distributed:
                return Outcome(runs.run_distributed(plan, view.show))
            return Outcome(runs.run_in_function(plan))
    except KeyboardInterrupt:
        left = "the master is stopped" if distributed else "the function goes on to its end"
        raise Interrupted(f"; {left}, and there is no report") from None
    finally:
        stack.close()


@contextmanager
def _local_store(
    plan: LoadPlan, view: LoadView, *, verify: bool = False
) -> Iterator[tuple[LoadPlan, Path | None]]:
    """Yield the plan with a store, which is a temporary file if none is named.

    With ``verify`` also the folder of the ledger. The first line says where the test runs.
    """
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    _check_locust()
    if not (Path(plan.folder) / plan.file).is_file():
        raise click.ClickException(
            f"there is no locustfile at {Path(plan.folder) / plan.file}; check --file and -C"
        )
    with TemporaryDirectory(prefix="zael-loadtest-") as folder:
        where = plan.host or "a temporary SQLite file (name a store: --url or --name)"
        if plan.host is None:
            plan = replace(plan, host=f"sqlite:///{folder}/limits.db")
        view.begin(plan, where)
        yield plan, Path(folder) if verify else None


def _check_locust() -> None:
    from importlib.util import find_spec

    if find_spec("locust") is None:
        from zae_limiter.extras import needs

        raise click.ClickException(needs("a load test on this machine", "Locust", "bench"))


def _run_locally(
    plan: LoadPlan, view: LoadView, folder: Path | None
) -> tuple[Outcome, dict[str, Any] | None]:
    """Run the plan; with a folder for the ledger, check that afterwards."""
    from zae_limiter_lab.loadtest import LEDGER_VARIABLE
    from zae_limiter_lab.loadtest.processes import LocalLoadTest

    environment = {} if folder is None else {LEDGER_VARIABLE: str(folder)}
    with view, LocalLoadTest(plan, view.show, environment) as test:
        outcome = test.run()
    return outcome, None if folder is None else _checked_ledger(plan, folder)


def _checked_ledger(plan: LoadPlan, folder: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_lab.loadtest.ledger import check_ledger

    with SyncRepository.open(plan.namespace, url=plan.host, provision="never") as repository:
        return asdict(check_ledger(folder, repository))


def _exit_code(data: dict[str, Any], outcome: Outcome) -> int:
    if outcome.interrupted:
        return INTERRUPTED
    problems = data["failures"] or data["errors"] or outcome.lost_workers
    return FAILED if problems or (data["ledger"] or {}).get("problems") else DONE
