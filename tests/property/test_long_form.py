"""The same properties, tried on many more cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = "1000"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", ["test_admission.py", "test_bucket_arithmetic.py", "test_stored_form.py"]
)
def test_the_properties_hold_in_many_more_cases(name):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name)],
        cwd=HERE.parents[1],
        env={**os.environ, "ZAEL_PROPERTY_EXAMPLES": EXAMPLES},
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout
