"""The checker judges the package, so it knows nothing of it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = """
import sys
import proof.checker.verdict
sys.exit(any(name.startswith(("zae_limiter", "tests")) for name in sys.modules))
"""


def test_the_checker_imports_nothing_of_the_package():
    done = subprocess.run([sys.executable, "-c", SOURCE], cwd=ROOT, check=False)
    assert done.returncode == 0
    for path in (ROOT / "proof" / "checker").glob("*.py"):
        assert "zae_limiter" not in path.read_text()
