"""Options whose values are limits, amounts of tokens, or seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zae_limiter.cli.options import validation_callback

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

F = TypeVar("F", bound=Callable[..., Any])

PERIODS = {"sec": 1, "min": 60, "hour": 3600, "day": 86_400}
_LIMIT = re.compile(r"([^:]+):([0-9][0-9_]*)(?:/([a-z]+))?(?::([0-9][0-9_]*))?")
_WHOLE_NUMBER = re.compile(r"[0-9][0-9_]*")


class LimitType(click.ParamType["Limit"]):
    """A limit as ``name:rate[/period][:burst]``."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        from zae_limiter.exceptions import ValidationError
        from zae_limiter.models.limit import Limit

        match = _LIMIT.fullmatch(value)
        if match is None:
            self.fail(
                f"{value!r} is not name:rate[/period][:burst], such as rpm:60 or tpm:9000/min:9999",
                param,
                ctx,
            )
        name, rate, period, burst = match.groups()
        if period is not None and period not in PERIODS:
            self.fail(f"{value!r}: the period is one of {', '.join(PERIODS)}", param, ctx)
        try:
            return Limit(name, int(burst or rate), int(rate), PERIODS[period or "min"])
        except ValidationError as error:
            self.fail(f"{value!r}: {error.field.removeprefix('limit.')} {error.reason}", param, ctx)


def _limits(value: tuple[Limit, ...]) -> tuple[Limit, ...]:
    from zae_limiter.models.limit import check_limits

    return check_limits(value)


limits_option = click.option(
    "--limit",
    "-l",
    "limits",
    type=LimitType(),
    multiple=True,
    required=True,
    metavar="NAME:RATE[/PERIOD][:BURST]",
    callback=validation_callback(_limits),
    help="A limit; may be repeated. Period: sec, min (default), hour or day.",
)


class AmountType(click.ParamType[tuple[str, int]]):
    """Tokens of one limit as ``name=amount``."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, equals, amount = value.partition("=")
        if not (name and equals and _WHOLE_NUMBER.fullmatch(amount)):
            self.fail(f"{value!r} is not name=amount, such as tpm=500", param, ctx)
        return name, int(amount)


def _amounts(value: tuple[tuple[str, int], ...]) -> dict[str, int]:
    from zae_limiter.exceptions import ValidationError
    from zae_limiter.models.limit import check_amounts

    amounts = dict(value)
    if len(amounts) < len(value):
        raise ValidationError("amounts", value, "names a limit twice")
    return check_amounts(amounts, "amounts")


def amounts_option(*names: str, required: bool, help: str) -> Callable[[F], F]:  # noqa: A002
    """Return an option that passes ``amounts``: whole tokens by limit name."""
    return click.option(
        *names,
        "amounts",
        type=AmountType(),
        multiple=True,
        required=required,
        metavar="NAME=AMOUNT",
        callback=validation_callback(_amounts),
        help=help,
    )


class Seconds(click.ParamType[float]):
    """A number of seconds within bounds."""

    name = "seconds"

    def __init__(self, minimum: float, maximum: float) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if math.isnan(seconds) or not self._minimum <= seconds <= self._maximum:
            self.fail(f"{value} is not between {self._minimum:g} and {self._maximum:g}", param, ctx)
        return seconds
