"""The calls of all other tests on DynamoDB are within the policies, too.

Tests that have a proxy are recorded whenever they run, and so is the contract suite. Here the
others are run once more, behind a proxy that records: a quarter more work, so not every time.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
MOST_OF_THEM = 1500  # of some 1,750 tests


@pytest.mark.slow
def test_all_tests_stay_within_the_policies_of_the_methods_that_they_call():
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "2"),
        *("-m", "not slow", "--timeout", "600", str(FOLDER)),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "ZAEL_RECORD_CALLS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    reports = [line for line in done.stdout.splitlines() if "does not permit" in line]
    assert not reports, "\n".join(reports)
    # What else may fail, a promise in seconds on a busy machine, is a matter of its own test.
    assert done.returncode in (0, 1), done.stdout[-5000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > MOST_OF_THEM
