"""The public API has the types that a user sees."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("user_program.py")


def _found(wrong):
    """What mypy says of both programs."""
    wrong.write_text(
        "from zae_limiter import Limit, SyncRateLimiter, SyncRepository\n"
        "SyncRateLimiter().acquire('key', 'gpt-4', {'rpm': 0.5})\n"
        "Limit.per_minute('rpm', 1.5)\n"
        "SyncRateLimiter().set_limits('key')\n"
        "SyncRepository.open(provision='tabel')\n"
        "SyncRepository.open(parallel_mode='serail')\n"
        "SyncRateLimiter().acquire('key', 'gpt-4', {'rpm': 1}, on_unavailable='alow')\n"
        "SyncRateLimiter().get_usage_snapshots('key', window_type='hour')\n"
        "from zae_limiter import RateLimter\n"
        "Limit.quota('tokens', 5, per='fortnight')\n"
        "Limit.budget('usd', 5, per='months')\n"
        "from zae_limiter import llm\n"
        "def read(call: llm.SyncLlmCall) -> None:\n"
        "    for chunk in call.stream([b'data']):\n"
        "        chunk.choices\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    result = subprocess.run(
        [*command, str(PROGRAM), str(wrong)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    return result.stdout


WRONG = (
    (2, "arg-type"),
    (3, "arg-type"),
    (4, "call-arg"),
    *((line, "arg-type") for line in range(5, 9)),
    (9, "attr-defined"),
    *((line, "arg-type") for line in (10, 11)),
    (15, "attr-defined"),
)


def test_a_typed_program_passes_strict_checking_and_a_wrong_use_is_found(tmp_path):
    """One test: mypy reads the package first, which takes seconds, and two workers would twice."""
    found = _found(tmp_path / "wrong.py")
    others = [line for line in found.splitlines() if "wrong.py:" not in line]
    assert others == []
    for line, code in WRONG:
        assert re.search(rf"wrong\.py:{line}: error: .*\[{code}\]", found), found
