"""What a cold start of the function imports."""

import json
import subprocess
import sys

NEVER = {"aiohttp", "asyncio", "boto3", "botocore", "click", "gzip", "rich", "sqlite3"}
PROGRAM = """
import json, sys, time
before = time.process_time()
import zae_limiter_aggregator.handler
took = time.process_time() - before
print(json.dumps({"modules": sorted(sys.modules), "took": took}))
"""


def test_a_cold_start_imports_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    modules = set(found["modules"])
    assert not modules & NEVER
    assert not modules & {f"zae_limiter.{name}" for name in ("_async", "_sync", "cli", "embedded")}
    # 100 ms is promised; modules may have to be compiled, on a machine with other work.
    assert found["took"] < 1.0
