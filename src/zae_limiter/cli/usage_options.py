"""Which usage windows, and how they are shown."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from zae_limiter.cli.options import check_entity, check_free_text, checked, resource_filter

F = TypeVar("F", bound=Callable[..., Any])


class Selection(NamedTuple):
    """What the options of ``usage_options`` say."""

    entity_id: str | None
    resource: str | None
    window: str
    start: str | None
    end: str | None
    plot: bool
    output: str
    file: str | None

    @property
    def is_picture(self) -> bool:
        return self.plot or self.file is not None

    def check(self) -> None:
        """Refuse options that do not go together, and pictures that cannot be drawn here."""
        from zae_limiter.models.timestamps import ms_from_iso

        start, end, output = self.start, self.end, self.output
        if start and end and ms_from_iso(start) >= ms_from_iso(end):
            raise click.UsageError(f"--end {end} must be later than --start {start}")
        into_file = output in ("png", "svg")
        if self.plot and output != "table":
            raise click.UsageError(f"--plot draws in the terminal; leave out --output {output}")
        if into_file and self.file is None:
            raise click.UsageError(f"--output {output} needs --file, such as --file usage.{output}")
        if self.file is not None and not into_file:
            raise click.UsageError("--file goes with --output png or svg")
        module, extra = ("plotext", "plot") if self.plot else ("matplotlib", "report")
        if self.is_picture and importlib.util.find_spec(module) is None:
            raise click.ClickException(
                f"pictures need {module}: pip install 'zae-limiter[{extra}]', "
                "or use --output table, json or csv"
            )


def _moment(value: str) -> str:
    from zae_limiter.models.timestamps import ms_from_iso

    ms_from_iso(value)
    return value


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--entity-id", "-e", metavar="ENTITY", callback=check_entity, help="Only this entity."
    ),
    resource_filter,
    click.option(
        "--window",
        type=click.Choice(("hourly", "daily")),
        default="hourly",
        show_default=True,
        help="Length of the windows.",
    ),
    click.option(
        "--start",
        metavar="TIME",
        callback=checked(_moment),
        help="Windows from this ISO time on, such as 2026-01-31 or 2026-01-31T08:00Z.",
    ),
    click.option(
        "--end", metavar="TIME", callback=checked(_moment), help="Windows before this ISO time."
    ),
    click.option("--plot", is_flag=True, help="Draw it; needs the extra 'plot'."),
    click.option(
        "--output",
        type=click.Choice(("table", "json", "csv", "png", "svg")),
        default="table",
        show_default=True,
        help="For people, for programs, or a picture for a report (extra 'report').",
    ),
    click.option(
        "--file",
        type=click.Path(dir_okay=False),
        callback=check_free_text,
        help="Where the picture goes, with --output png or svg.",
    ),
)


def usage_options(command: F) -> F:
    """``chosen``, a selection that makes sense."""

    @functools.wraps(command)
    def call(*args: Any, **given: Any) -> Any:
        chosen = Selection(**{name: given.pop(name) for name in Selection._fields})
        chosen.check()
        return command(*args, chosen=chosen, **given)

    wrapped: Any = call
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
