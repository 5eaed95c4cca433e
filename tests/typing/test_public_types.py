"""The public API has the types that a user sees."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("user_program.py")


def mypy(path):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_typed_program_passes_strict_checking():
    result = mypy(PROGRAM)
    assert result.returncode == 0, result.stdout


WRONG = (
    (2, "arg-type"),
    (3, "arg-type"),
    (4, "call-arg"),
    *((line, "arg-type") for line in range(5, 9)),
    (9, "attr-defined"),
)


def test_a_wrong_use_is_found(tmp_path):
    wrong = tmp_path / "wrong.py"
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
    found = mypy(wrong).stdout
    for line, code in WRONG:
        assert re.search(rf"wrong\.py:{line}: error: .*\[{code}\]", found), found
