"""``zae-limiter loadtest deploy``, ``push``, ``ui``, ``list`` and ``delete``: stacks on AWS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_lab.cli.loadtest_options import (
    MAX_WORKERS,
    classes_argument,
    file_option,
    folder_option,
)
from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.errors import Interrupted, suggested
from zae_limiter_ops.cli.shared.options import output_option, yes_option
from zae_limiter_ops.cli.shared.store_options import (
    endpoint_option,
    region_option,
    registry_options,
)
from zae_limiter_ops.cli.shared.tables import print_hint, print_result, print_table
from zae_limiter_ops.cli.stack.progress import stack_progress
from zae_limiter_ops.views.formatting import format_time

if TYPE_CHECKING:
    from zae_limiter_lab.loadtest.cloud import LoadTestStack, NetworkPlace
    from zae_limiter_ops.cli.shared.store import StoreLocation

_VPC = re.compile(r"vpc-[0-9a-z-]+")
_SUBNET = re.compile(r"subnet-[0-9a-z-]+")
_ARN = re.compile(r"arn:[a-z0-9-]+:iam::[0-9]*:policy/.+")
UI_WORKERS = 1
WEB_PORT = 8089


def _vpc_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _VPC.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the id of a VPC", ctx, param)
    return value


def _subnet_ids(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    subnets = tuple(value.split(","))
    if not all(_SUBNET.fullmatch(subnet) for subnet in subnets):
        raise click.BadParameter(f"{value!r} is not a list of subnets", ctx, param)
    return subnets


def _boundary(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _ARN.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the ARN of a policy", ctx, param)
    return value


@contextmanager
def _opened(store: StoreLocation, output: str, title: str) -> Iterator[LoadTestStack]:
    """Open the stack for the block, with live progress."""
    from zae_limiter_lab.loadtest.cloud import LoadTestStack

    place = store.stack()
    with stack_progress(f"{title} {place[0]}") as on_event:
        stack = LoadTestStack(*place, on_event=on_event, say=lambda line: print_hint(output, line))
        try:
            yield stack
        except KeyboardInterrupt:
            raise Interrupted("; what was begun goes on; finish it by running it again") from None
        finally:
            stack.close()


@click.command()
@folder_option
@click.option(
    "--vpc-id",
    metavar="VPC",
    callback=_vpc_id,
    help="VPC of master and workers; otherwise the default one. Goes with --subnet-ids.",
)
@click.option(
    "--subnet-ids",
    metavar="SUBNET,SUBNET",
    callback=_subnet_ids,
    help="Subnets of master and workers, with a way to DynamoDB and, for the master, to the "
    "internet.",
)
@click.option(
    "--permission-boundary",
    metavar="ARN",
    callback=_boundary,
    help="Permission boundary of the roles of the stack; an update keeps the one it has.",
)
@registry_options
@output_option
def deploy(
    store: StoreLocation,
    folder: Path,
    vpc_id: str | None,
    subnet_ids: tuple[str, ...] | None,
    permission_boundary: str | None,
    output: str,
) -> None:
    """Deploy a stack for load tests, beside a deployed limiter.

    It has a Fargate master and functions as workers, which run one image: Locust, this version of
    zae-limiter, and the files of the folder. CodeBuild builds the image. Between tests nothing
    runs, and the stack costs little.

    \b
    Examples:
      zae-limiter loadtest deploy -n my-app -C .
      zae-limiter loadtest deploy -n my-app --vpc-id vpc-1 --subnet-ids subnet-1,subnet-2

    JSON: name, limiter, image.
    """
    if (vpc_id is None) != (subnet_ids is None):
        raise click.UsageError("--vpc-id and --subnet-ids go together")
    with _opened(store, output, "deploying load tests of") as stack:
        image = stack.deploy(
            folder,
            place=_place(vpc_id, subnet_ids),
            permission_boundary=permission_boundary,
        )
        data = {"name": stack.name, "limiter": stack.limiter, "image": image}
    print_result(output, data, f"{data['name']} is deployed")
    print_hint(output, f"next: {suggested('loadtest', 'run', options=('-f', 'locustfile.py'))}")


def _place(vpc_id: str | None, subnet_ids: tuple[str, ...] | None) -> NetworkPlace | None:
    from zae_limiter_lab.loadtest.cloud import NetworkPlace

    return NetworkPlace(vpc_id, subnet_ids) if vpc_id and subnet_ids else None


@click.command()
@folder_option
@registry_options
@output_option
def push(store: StoreLocation, folder: Path, output: str) -> None:
    """Bring changed locustfiles and this version to a load-test stack.

    \b
    Example:
      zae-limiter loadtest push -n my-app -C .

    JSON: name, limiter, image.
    """
    with _opened(store, output, "pushing to load tests of") as stack:
        image = stack.push(folder)
        data = {"name": stack.name, "limiter": stack.limiter, "image": image}
    print_result(output, data, f"{data['name']} runs image {image.rpartition(':')[2]}")


@click.command()
@classes_argument
@file_option
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=UI_WORKERS,
    show_default=True,
    help="Number of functions that work for the master.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=WEB_PORT,
    show_default=True,
    help="Port of this machine at which the interface is served.",
)
@registry_options
@output_option
def ui(
    store: StoreLocation,
    user_classes: tuple[str, ...],
    locustfile: str,
    workers: int,
    port: int,
    output: str,
) -> None:
    """Open Locust's web interface of a master on AWS.

    Starts a Fargate master with its workers, opens a tunnel to it through SSM, and opens the
    browser when it answers. Ctrl-C ends the tunnel and the master. Needs the Session Manager
    plugin.

    \b
    Example:
      zae-limiter loadtest ui -n my-app -f locustfiles/simple.py

    JSON: url, task.
    """
    from zae_limiter_lab.loadtest import LoadPlan
    from zae_limiter_lab.loadtest.cloud_runs import CloudRuns
    from zae_limiter_lab.loadtest.tunnel import find_plugin

    find_plugin()  # before anything is started
    plan = LoadPlan(locustfile, user_classes, workers=workers)
    with _opened(store, output, "load tests of") as stack:
        stack.require()
        runs = CloudRuns(stack)
        task = runs.start_master(plan, "ui", web=True)
        try:
            _serve(stack, runs, task, port, output)
        except KeyboardInterrupt:
            print_hint(output, "the master is stopped")
        finally:
            runs.stop(task)


def _serve(stack: LoadTestStack, runs: Any, task: str, port: int, output: str) -> None:
    """Hold the tunnel open until it ends or is interrupted."""
    import webbrowser

    from zae_limiter_lab.loadtest.tunnel import open_tunnel, wait_until_served

    print_hint(output, "starting the master")
    description = runs.wait_until_running(task)
    cluster = stack.manager.outputs()["Cluster"]
    url = f"http://localhost:{port}"
    with open_tunnel(stack.control, cluster, description, port) as tunnel:
        try:
            wait_until_served(url, lambda: tunnel.poll() is None)
            print_result(output, {"url": url, "task": task}, f"{url} (Ctrl-C ends it)")
            webbrowser.open(url)
            tunnel.wait()
        finally:
            tunnel.terminate()


@click.command("list")
@region_option("AWS region to look in.")
@endpoint_option("Endpoint of a local control plane.")
@output_option
def list_command(region: str | None, endpoint_url: str | None, output: str) -> None:
    """List the load-test stacks of a region.

    \b
    Example:
      zae-limiter loadtest list --region us-east-1

    JSON: a list of: stack_name, limiter, stack_status, creation_time, has_image.
    """
    from zae_limiter_lab.loadtest.cloud import list_load_stacks

    infos = list_load_stacks(region, endpoint_url)
    if output == "json" or not infos:
        data = [info._asdict() for info in infos]
        print_result(output, data, "no load-test stack is deployed here")
        return
    print_table(
        ("name=", "limiter=", "status=", "image", "created="),
        (
            (
                info.stack_name,
                info.limiter,
                info.stack_status,
                "yes" if info.has_image else "no",
                format_time(info.creation_time),
            )
            for info in infos
        ),
    )


@click.command()
@registry_options
@yes_option
@output_option
def delete(store: StoreLocation, yes: bool, output: str) -> None:
    """Delete a load-test stack; the limiter stays.

    \b
    Example:
      zae-limiter loadtest delete -n my-app --yes

    JSON: name, deleted.
    """
    with _opened(store, output, "deleting load tests of") as stack:
        stack.require(with_image=False)
        confirm(
            f"this deletes stack {stack.name!r} with its images and reports; the limiter "
            f"{stack.limiter!r} stays",
            "Delete it?",
            yes=yes,
        )
        data = {"name": stack.name, "deleted": stack.delete()}
    print_result(output, data, f"{data['name']} is deleted")


STACK_COMMANDS = (deploy, push, ui, list_command, delete)
