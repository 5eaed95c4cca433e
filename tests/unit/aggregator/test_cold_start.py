"""The imports of a cold start of the function."""

import subprocess
import sys

NEVER = {"aiohttp", "asyncio", "boto3", "botocore", "click", "rich", "sqlite3"}
PROGRAM = """
import sys
import zae_limiter_aggregator.handler
print(*sys.modules)
"""


def test_a_cold_start_imports_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert not modules & NEVER
    unneeded = ("_async", "cli", "embedded")
    assert not modules & {f"zae_limiter.{name}" for name in unneeded}
