"""Names that a namespace has never seen: a change of one has probably missed its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.tables import print_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zae_limiter_ops.views.names import UnknownName


def refuse_unknown(unknown: Iterable[UnknownName], *, force: bool) -> None:
    """Raise if a name was never seen: calls that were to be denied would go on."""
    problems = "; ".join(each.problem for each in unknown)
    if problems and not force:
        raise click.ClickException(
            f"{problems}; nothing was denied; check the name, or give --force to deny it all the "
            "same"
        )


def warn_unknown(output: str, unknown: Iterable[UnknownName]) -> None:
    """Warn on stderr about the names that a change has made known."""
    for each in unknown:
        print_hint(output, each.warning)
