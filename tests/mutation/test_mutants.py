"""The tests are tested: each way to break the core makes the test fail that guards against it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PASSED, FAILED = 0, 1


def name_of(mutant):
    return mutant.name.replace(" ", "-")


@pytest.fixture
def copy(tmp_path):
    """A copy of the packages that may be broken."""
    target = tmp_path / "src"
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def run(source, tests):
    """Run tests against a copy, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line"]
    plugins = ["no:cacheprovider", "no:xdist", "tests.mutation.which_source"]
    options = [option for plugin in plugins for option in ("-p", plugin)]
    return subprocess.run(
        [*command, *options, *tests],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ZAEL_MUTANT_SOURCE": str(source),
            "CI": "1",  # the same cases in every run
            "ZAEL_PROPERTY_EXAMPLES": "50",
            "ZAEL_SHORT_HISTORIES": "120",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_the_tests_pass_on_the_copy_as_it_is(copy):
    done = run(copy, sorted({mutant.test for mutant in MUTANTS}))
    assert done.returncode == PASSED, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_broken_copy_is_noticed(copy, mutant):
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    done = run(copy, [mutant.test])
    assert done.returncode == FAILED, done.stdout + done.stderr
    assert f"FAILED {mutant.test}" in done.stdout


def test_the_line_that_a_mutant_changes_exists_exactly_once():
    files = {mutant.file for mutant in MUTANTS}
    texts = {file: (SOURCE / file).read_text("utf-8") for file in files}
    changed = [each for each in MUTANTS if texts[each.file].count(each.old) != 1]
    assert changed == [], "the files have changed; update these mutants"


def test_no_two_mutants_are_the_same():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant[1:4] for mutant in MUTANTS}) == len(MUTANTS)
