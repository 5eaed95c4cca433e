"""The path of an acquire stays short enough to be followed by a reader."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAX_MODULES, MAX_CALLS = 32, 80
PROGRAM = """
import json
from tools.walk import walk
calls = walk("dynamodb", {case!r}, {tree!r})
print(json.dumps([len({{call.module for call in calls}}), len(calls)]))
"""


def walked(case, tree):
    """Walk in a process of its own: a profile function is of the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(case=case, tree=tree)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("tree", ["async", "sync"])
def test_a_warm_acquire_visits_few_modules_and_functions(tree):
    modules, calls = walked("warm", tree)
    assert modules <= MAX_MODULES
    assert calls <= MAX_CALLS


def test_a_refused_acquire_that_is_cached_stays_in_the_process():
    modules, _ = walked("refused", "async")
    assert modules < MAX_MODULES
