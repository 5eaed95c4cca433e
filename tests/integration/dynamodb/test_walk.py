"""`tools/walk.py` draws the way of an acquire through the modules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
from tools.walk import walk
print(*(call.module for call in walk("dynamodb", {case!r}, {tree!r})))
"""


def walked(case, tree):
    """Return the modules of a walk, made in a process of its own.

    A profile function is installed for the whole process.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(case=case, tree=tree)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("tree", ["async", "sync"])
def test_the_walk_of_a_warm_acquire_reaches_the_transport(tree):
    modules = walked("warm", tree)
    assert any("transport" in module for module in modules)


def test_a_rejected_acquire_that_is_cached_stays_in_the_process():
    modules = walked("rejected", "async")
    assert modules
    assert not any("transport" in module for module in modules)
