"""Options that commands share."""

from __future__ import annotations

import math
from typing import Any

import click


def _check_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Say what is wrong with a URL before anything is opened."""
    if value is not None:
        from zae_limiter.exceptions import ValidationError
        from zae_limiter.store_url import parse_url

        try:
            parse_url(value)
        except ValidationError as error:
            raise click.BadParameter(f"{value!r} {error.reason}", ctx, param) from error
    return value


url_option = click.option(
    "--url",
    envvar="ZAEL_URL",
    show_envvar=True,
    metavar="URL",
    callback=_check_url,
    help="Store: memory://, sqlite:///limits.db or dynamodb://STACK.",
)

output_option = click.option(
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)


class Seconds(click.ParamType[float]):
    """A finite span of time within bounds."""

    name = "seconds"

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if math.isnan(seconds) or not self._least <= seconds <= self._most:
            self.fail(f"{value} is not between {self._least:g} and {self._most:g}", param, ctx)
        return seconds
