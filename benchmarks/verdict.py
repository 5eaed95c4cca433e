"""The verdict on a requirement."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.runner import Results


class Verdict(NamedTuple):
    """One requirement; ``holds`` is None where it was not measured."""

    requirement: str
    measured: str
    holds: bool | None

    @property
    def on_server(self) -> bool:
        return self.requirement.startswith("dynamodb")


def unknown(requirement: str) -> Verdict:
    return Verdict(requirement, "not measured", None)


def ratio_verdict(
    results: Results,
    requirement: str,
    case: Case | None,
    other: Case | None,
    fits: Callable[[float], bool],
    figure: str = "wall_us",
) -> Verdict:
    """Compare two cases by the ratio of a figure."""
    if case is None or other is None:
        return unknown(requirement)
    ratio = results.ratio(case, other, figure)
    return Verdict(requirement, f"{ratio:.2f} ×", fits(ratio))
