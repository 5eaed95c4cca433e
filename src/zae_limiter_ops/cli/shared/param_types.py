"""Options whose values are limits, amounts of tokens, or seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zae_limiter.exceptions import ValidationError
from zae_limiter_ops.cli.shared.completion import complete_amount
from zae_limiter_ops.cli.shared.options import validation_callback

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

F = TypeVar("F", bound=Callable[..., Any])


class LimitType(click.ParamType["Limit"]):
    """A limit as ``name:rate[/period][:burst]``, or ``name:n/concurrent[:lease_ttl]``."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        from zae_limiter.models.limit import Limit

        try:
            return Limit.parse(value)
        except ValidationError as error:
            _, _, part = error.field.partition(".")  # empty if the text is no limit at all
            self.fail(f"{value!r}: {f'{part} {error.reason}'.lstrip()}", param, ctx)


def _limits(value: tuple[Limit, ...]) -> tuple[Limit, ...]:
    from zae_limiter.models.limit import check_limits

    return check_limits(value) if value else ()  # click itself reports a missing option


def _limits_option(*, required: bool) -> Callable[[F], F]:
    return click.option(
        "--limit",
        "-l",
        "limits",
        type=LimitType(),
        multiple=True,
        required=required,
        metavar="NAME:RATE[/PERIOD][:BURST]",
        callback=validation_callback(_limits),
        help="A limit; may be repeated. Period: sec, min (default), hour, day or week, or a number "
        "of them such as 90s or 2h. For calls in flight: NAME:N/concurrent[:LEASE_TTL]. For a "
        "quota: NAME:AMOUNT/PERIOD@ZONE, such as tokens:1M/month@UTC or usd:250USD/month@UTC.",
    )


limits_option = _limits_option(required=True)
optional_limits_option = _limits_option(required=False)


class AmountType(click.ParamType[tuple[str, int | str]]):
    """Tokens of one limit as ``name=amount``, or money of a budget as ``usd=0.25``."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | str]:
        from zae_limiter_ops.views.amounts import parse_amount

        parsed = parse_amount(value)
        if parsed is None:
            self.fail(f"{value!r} is not name=amount, such as tpm=500 or usd=0.25", param, ctx)
        return parsed


def _amounts(value: tuple[tuple[str, int | str], ...]) -> dict[str, Any]:
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
        shell_complete=complete_amount,
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
