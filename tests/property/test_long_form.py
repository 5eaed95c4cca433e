"""The same properties, tried on many more cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = "1000"
FILES = [
    *("admission", "bucket_arithmetic", "charge_template", "combined_shards", "layouts"),
    *("limit_notation", "moves", "odd_answers", "repayments", "shards", "spilled", "stored_form"),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [f"test_{name}.py" for name in FILES])
def test_the_properties_hold_in_many_more_cases(name):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "not slow"),
            *("-p", "no:cacheprovider", str(HERE / name)),
        ],
        cwd=HERE.parents[1],
        env={**os.environ, "ZAEL_PROPERTY_EXAMPLES": EXAMPLES},
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout
