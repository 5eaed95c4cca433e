"""The results of the steps, and the report about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Skip(Exception):
    """A step cannot run here; the text is the reason."""


@dataclass(frozen=True)
class StepResult:
    """The result of one step. ``detail`` is the reason unless the step has passed."""

    name: str
    outcome: str
    seconds: float
    detail: str = ""

    @property
    def line(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.outcome:8}{self.seconds:7.1f} s  {self.name}{detail}"


@dataclass
class Report:
    """Everything that a run has found."""

    account: str
    region: str
    stack: str
    endpoint: str
    version: str
    started: str
    steps: list[StepResult] = field(default_factory=list)
    units: list[dict[str, Any]] = field(default_factory=list)  # documented and consumed units
    left: list[str] = field(default_factory=list)  # resources that still exist

    @property
    def has_passed(self) -> bool:
        """Whether no step has failed; a skipped step is no failure, and the report names it."""
        return all(step.outcome != FAILED for step in self.steps)

    def write(self, folder: Path) -> None:
        """Write ``report.json`` and ``report.md``; a run does so after each step."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"passed": self.has_passed, **asdict(self)}, indent=2)
        (folder / "report.json").write_text(text + "\n")
        (folder / "report.md").write_text(self.markdown())

    def markdown(self) -> str:
        """Return the report as a page."""
        lines = [
            f"# Acceptance of zae-limiter {self.version}",
            "",
            f"Stack `{self.stack}` in {self.region} of account {self.account}, {self.endpoint}.",
            f"Started {self.started}.",
            "",
            *_table(
                ("step", "outcome", "seconds", "detail"),
                [
                    (each.name, each.outcome, f"{each.seconds:.1f}", each.detail)
                    for each in self.steps
                ],
            ),
        ]
        if self.units:
            rows = [
                (
                    each["operation"],
                    _cost(each["documented"]),
                    _cost(each["seen"]),
                    "" if each["documented"] == each["seen"] else "differs",
                )
                for each in self.units
            ]
            heads = ("operation (calls / WCU / RCU)", "documented", "consumed", "")
            lines += ["", "## Units", "", *_table(heads, rows)]
        lines += ["", "## Left over", ""]
        lines += [f"- {each}" for each in self.left] or ["Nothing."]
        return "\n".join(lines) + "\n"


def _cost(cost: list[float]) -> str:
    return " / ".join(f"{each:g}" for each in cost)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(_cell(each) for each in cells) + " |"

    return [line(heads), "|" + "---|" * len(heads), *map(line, rows)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
