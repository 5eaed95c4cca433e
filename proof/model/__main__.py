"""Explore the models in parts whose union is the protocol, and say how many states there are."""

from __future__ import annotations

import sys
import time

from proof.model.explore import Bounds, Explorer

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


def main() -> int:
    """Print a line for each part; raises with the history that breaks a rule."""
    for name, bounds in PARTS.items():
        explorer, began = Explorer(bounds), time.monotonic()
        explorer.explore()
        sys.stdout.write(
            f"{name}: {explorer.states:,} states, {explorer.transitions:,} steps, "
            f"{time.monotonic() - began:.1f} s\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
