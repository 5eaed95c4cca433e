"""Explore the model in parts whose union is its protocol, and say how many states there are."""

from __future__ import annotations

import sys
import time

from proof.model.explore import Bounds, Explorer

# Moments that may pass, operations of each client, tries, kinds of operations, lost answers.
PARTS = {
    "charges and refunds, answers lost": Bounds(1, (1, 1), 2, ("charge", "credit"), 1),
    "changes of limits, answers lost": Bounds(1, (1, 1), 2, ("charge", "rebase"), 1),
    "splits, answers lost": Bounds(0, (1, 1), 2, ("charge", "split"), 1),
    "charges and refunds": Bounds(1, (2, 2), 1, ("charge", "credit"), 0),
    "changes of limits": Bounds(1, (2, 2), 1, ("charge", "rebase"), 0),
    "splits, merges and gathers": Bounds(0, (3, 1), 1, ("charge", "gather", "split", "merge"), 0),
    "splits, merges and refunds": Bounds(0, (3, 1), 1, ("charge", "credit", "split", "merge"), 0),
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
