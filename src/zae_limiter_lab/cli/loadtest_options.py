"""Options of the commands about load tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zae_limiter_ops.cli.shared.param_types import Seconds

F = TypeVar("F", bound=Callable[..., Any])
MAX_USERS = 100_000
MAX_WORKERS = 1000
LONGEST_S = 86_400  # a day


def _class_names(
    ctx: click.Context, param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        if not name.isidentifier():
            raise click.BadParameter(f"{name!r} is not the name of a class", ctx, param)
    return names


def _folder(ctx: click.Context, param: click.Parameter, folder: Path) -> Path:
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {str(folder)!r}", ctx, param)
    return folder


def _html(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise click.BadParameter(f"{str(file)!r} cannot be a file", ctx, param)
    return file


def _file(ctx: click.Context, param: click.Parameter, file: str) -> str:
    if not file.endswith(".py"):
        raise click.BadParameter(f"{file!r} is not a Python file", ctx, param)
    return file


file_option = click.option(
    "--file",
    "-f",
    "locustfile",
    metavar="FILE",
    default="locustfile.py",
    show_default=True,
    callback=_file,
    help="Locustfile, relative to the folder.",
)
folder_option = click.option(
    "--folder",
    "-C",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=".",
    show_default=True,
    callback=_folder,
    help="Folder of the locustfiles and of what they import.",
)
_PLACES = (
    click.option("--local", "place", flag_value="local", help="Run on this machine."),
    click.option("--aws", "place", flag_value="aws", help="Run on the load-test stack."),
)


def plan_options(
    users: int, users_help: str, seconds: float, seconds_help: str
) -> Callable[[F], F]:
    """Return the options that ``run`` and ``tune`` share, with their own defaults."""
    options = (
        file_option,
        folder_option,
        click.option(
            "--users",
            type=click.IntRange(1, MAX_USERS),
            default=users,
            show_default=True,
            help=users_help,
        ),
        click.option(
            "--duration",
            type=Seconds(0.5, LONGEST_S),
            default=seconds,
            show_default=True,
            metavar="SECONDS",
            help=seconds_help,
        ),
        *_PLACES,
    )

    def add(command: F) -> F:
        wrapped: Any = command
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return add


classes_argument = click.argument(
    "user_classes", metavar="[USER_CLASS]...", nargs=-1, callback=_class_names
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    help="Number of worker processes; on AWS, of functions that work for a master. Default: 1.",
)
html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_html,
    help="Also write Locust's report, a page with charts, to this file; on this machine only.",
)
