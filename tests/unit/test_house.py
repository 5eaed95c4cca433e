"""Names of the hand-written source."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_no_class_name_exists_twice():
    homes = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "_sync" in path.parts:  # generated from _async
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
