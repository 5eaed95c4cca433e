"""Explore the models in parts whose union is the protocol, and say how many states there are."""

from __future__ import annotations

import sys
import time
from typing import Any

from proof.model import holds
from proof.model.explore import Bounds, Explorer
from proof.model.search import Search

CHARGE, REFUND = ("charge",), ("charge", "credit")

PARTS = {
    "charges and refunds, answers lost": Bounds(1, (1, 1), 2, REFUND, losses=1),
    "changes of limits, answers lost": Bounds(1, (1, 1), 2, (*CHARGE, "rebase"), losses=1),
    "splits, answers lost": Bounds(0, (1, 1), 2, (*CHARGE, "split"), losses=1),
    "charges and refunds": Bounds(1, (2, 2), 1, REFUND, losses=0),
    "changes of limits": Bounds(1, (2, 2), 1, (*CHARGE, "rebase"), losses=0),
    "splits, merges and gathers": Bounds(
        0, (3, 1), 1, (*CHARGE, "gather", "split", "merge"), losses=0
    ),
    "splits, merges and refunds": Bounds(0, (3, 1), 1, (*REFUND, "split", "merge"), losses=0),
    "charges and refunds, delivered twice": Bounds(1, (2, 2), 1, REFUND, losses=0, copies=1),
    "charges and refunds, two of them delivered twice": Bounds(
        0, (2, 2), 1, REFUND, losses=0, copies=2
    ),
    "refusals tried again, delivered twice": Bounds(1, (2, 1), 2, REFUND, losses=0, copies=1),
    "charges and refunds, delivered twice, answers lost": Bounds(
        0, (2, 1), 2, REFUND, losses=1, copies=1
    ),
    "changes of limits, delivered twice": Bounds(
        1, (2, 1), 1, (*REFUND, "rebase"), losses=0, copies=1
    ),
    "splits, delivered twice": Bounds(0, (2, 2), 1, (*REFUND, "split"), losses=0, copies=1),
}


HOLDS = {
    "holds that expire": holds.Bounds(3, operations=(3, 2), costs=(0, 1)),
    "holds of two sizes that expire": holds.Bounds(3, estimates=(1, 2), costs=(1, 3)),
    "holds at the end of a window": holds.Bounds(4, edge=3),
    "holds that end and begin in one write": holds.Bounds(3, edge=2, groups=True),
    "holds that expire, answers lost": holds.Bounds(3, costs=(1,), losses=1),
    "holds at the end of a window, answers lost": holds.Bounds(3, edge=2, costs=(0, 3), losses=1),
    "renewals, answers lost": holds.Bounds(3, operations=(3, 2), tries=1, costs=(1,), losses=1),
    "holds that expire, delivered twice": holds.Bounds(3, costs=(0, 1), copies=1),
    "holds at the end of a window, delivered twice": holds.Bounds(
        3, edge=2, costs=(0, 3), copies=1
    ),
    "holds that expire, delivered twice, answers lost": holds.Bounds(
        3, operations=(2, 1), costs=(1,), losses=1, copies=1
    ),
}


def main() -> int:
    """Print a line for each part; raises with the history that breaks a rule."""
    for name, bounds in PARTS.items():
        _explore(name, Explorer(bounds))
    for name, of_holds in HOLDS.items():
        _explore(name, holds.Explorer(of_holds))
    return 0


def _explore(name: str, model: Search[Any]) -> None:
    began = time.monotonic()
    model.explore()
    seconds = time.monotonic() - began
    line = f"{name}: {model.states:,} states, {model.transitions:,} steps, {seconds:.1f} s\n"
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
