"""Options of the usage commands: the windows, and the form of output."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from zae_limiter_ops.cli.shared.options import (
    check_entity,
    check_free_text,
    resource_filter,
    validation_callback,
)

if TYPE_CHECKING:
    from zae_limiter.models.usage import WindowName

F = TypeVar("F", bound=Callable[..., Any])

HOUR_MS = 3_600_000


class UsageOptions(NamedTuple):
    """The values of the options that ``usage_options`` adds."""

    entity_id: str | None
    resource: str | None
    window: WindowName
    start: str | None
    end: str | None
    plot: bool
    output: str
    file: str | None

    @property
    def first_window(self) -> str | None:
        """The start of the first listed window, which contains ``start``."""
        if self.start is None:
            return None
        from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
        from zae_limiter.models.usage import WindowType
        from zae_limiter.usage.report import window_start

        hour = ms_from_iso(self.start) // HOUR_MS
        return iso_from_ms(window_start(WindowType(self.window), hour) * HOUR_MS)

    @property
    def is_chart(self) -> bool:
        return self.plot or self.output in ("png", "svg")

    @property
    def reads_all(self) -> bool:
        """Whether the output shows all windows instead of a page."""
        return self.is_chart or self.output == "html"

    def check(self) -> None:
        """Raise if options contradict each other, or if the library for charts is missing."""
        from zae_limiter.models.timestamps import ms_from_iso

        start, end, output = self.start, self.end, self.output
        if start and end and ms_from_iso(start) >= ms_from_iso(end):
            raise click.UsageError(f"--end {end} must be later than --start {start}")
        into_file = output in ("png", "svg")
        if self.plot and output != "table":
            raise click.UsageError(f"--plot draws in the terminal; leave out --output {output}")
        if into_file and self.file is None:
            raise click.UsageError(f"--output {output} needs --file, such as --file usage.{output}")
        if self.file is not None and not (into_file or output == "html"):
            raise click.UsageError("--file goes with --output png, svg or html")
        module = "plotext" if self.plot else "matplotlib"
        if self.is_chart and importlib.util.find_spec(module) is None:
            raise click.ClickException(
                f"charts need {module}: pip install {module}, "
                "or use --output table, json, csv or html"
            )


def _iso_time(value: str) -> str:
    from zae_limiter.models.timestamps import ms_from_iso

    ms_from_iso(value)
    return value


def file_option(text: str) -> Callable[[F], F]:
    """Return the option for the file of a report; ``text`` is its help."""
    return click.option(
        "--file", "-o", type=click.Path(dir_okay=False), callback=check_free_text, help=text
    )


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--entity-id", "-e", metavar="ENTITY", callback=check_entity, help="Only this entity."
    ),
    resource_filter("Only this resource."),
    click.option(
        "--window",
        type=click.Choice(("hourly", "daily", "monthly")),
        default="hourly",
        show_default=True,
        help="Length of the windows.",
    ),
    click.option(
        "--start",
        metavar="TIME",
        callback=validation_callback(_iso_time),
        help="First window: the window of this ISO time, such as 2026-01-31T08:00Z.",
    ),
    click.option(
        "--end",
        metavar="TIME",
        callback=validation_callback(_iso_time),
        help="Only windows before this ISO time.",
    ),
    click.option(
        "--plot", is_flag=True, help="Draw a chart in the terminal; needs the extra 'plot'."
    ),
    click.option(
        "--output",
        type=click.Choice(("table", "json", "csv", "html", "png", "svg")),
        default="table",
        show_default=True,
        help="Output format; html is one self-contained page; png and svg are charts and need the "
        "extra 'report'.",
    ),
    file_option("File of the chart or page, with --output png, svg or html."),
)


def usage_options(command: F) -> F:
    """Pass ``options``, a checked ``UsageOptions``."""

    @functools.wraps(command)
    def call(*args: Any, **params: Any) -> Any:
        options = UsageOptions(**{name: params.pop(name) for name in UsageOptions._fields})
        options.check()
        return command(*args, options=options, **params)

    wrapped: Any = call
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
