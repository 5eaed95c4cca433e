"""What a whole run of tests has needed, by role, and what it may not: a file of each process.

``ZAEL_RECORD_CALLS`` names the folder; without it nothing is kept.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.policies import Access

Needed = tuple[str, Access]  # a role, and a right

_FOLDER = os.environ.get("ZAEL_RECORD_CALLS")


class Journal(NamedTuple):
    """How often each right was needed, and the reports of calls that no policy permits."""

    needed: Counter[Needed]
    reports: list[str]


_own = Journal(Counter(), [])


def note(needed: Iterable[Needed], reports: list[str]) -> None:
    """Add what a test has needed."""
    if _FOLDER:
        _own.needed.update(needed)
        _own.reports.extend(reports)
        Path(_FOLDER, f"{os.getpid()}.json").write_text(_written(_own))


def read(folder: Path) -> Journal:
    """Return what all processes have noted."""
    found = Journal(Counter(), [])
    for file in folder.glob("*.json"):
        noted = json.loads(file.read_text())
        found.reports.extend(noted["reports"])
        for role, call, resource, keys, times in noted["needed"]:
            found.needed[role, Access(call, resource, frozenset(keys))] += times
    return found


def _written(journal: Journal) -> str:
    rows = [
        [role, access.call, access.resource, sorted(access.keys), times]
        for (role, access), times in journal.needed.items()
    ]
    return json.dumps({"needed": rows, "reports": journal.reports})
