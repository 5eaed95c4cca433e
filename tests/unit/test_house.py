"""Names of the hand-written source."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)


def test_no_class_name_exists_twice():
    homes = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "_sync" in path.parts:  # generated from _async
            continue
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            homes.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert "Repository" in homes
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
