"""The public API has the types that a user sees."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("user_program.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What mypy says of both programs: it reads the package first, which takes seconds."""
    wrong = tmp_path_factory.mktemp("typing") / "wrong.py"
    wrong.write_text(
        "from zae_limiter import Limit, SyncRateLimiter, SyncRepository\n"
        "SyncRateLimiter().acquire('key', 'gpt-4', {'rpm': 'one'})\n"
        "Limit.per_minute('rpm', 1.5)\n"
        "SyncRateLimiter().set_limits('key')\n"
        "SyncRepository.open(provision='tabel')\n"
        "SyncRepository.open(parallel_mode='serail')\n"
        "SyncRateLimiter().acquire('key', 'gpt-4', {'rpm': 1}, on_unavailable='alow')\n"
        "SyncRateLimiter().get_usage_snapshots('key', window_type='hour')\n"
        "from zae_limiter import RateLimter\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    result = subprocess.run(
        [*command, str(PROGRAM), str(wrong)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    return result.stdout


def test_a_typed_program_passes_strict_checking(found):
    others = [line for line in found.splitlines() if "wrong.py:" not in line]
    assert others == []


WRONG = (
    (2, "arg-type"),
    (3, "arg-type"),
    (4, "call-arg"),
    *((line, "arg-type") for line in range(5, 9)),
    (9, "attr-defined"),
)


def test_a_wrong_use_is_found(found):
    for line, code in WRONG:
        assert re.search(rf"wrong\.py:{line}: error: .*\[{code}\]", found), found
