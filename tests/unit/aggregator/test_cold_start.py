"""What a cold start of the function imports."""

import json
import subprocess
import sys

from zae_limiter import naming, schema
from zae_limiter.admission import image, in_force
from zae_limiter.dynamodb.items import usage

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
    unneeded = ("_async", "_sync", "admission", "bucket", "cli", "dynamodb.table", "embedded")
    unneeded += ("dynamodb.items.bucket", "models.config", "naming")
    assert not modules & {f"zae_limiter.{name}" for name in unneeded}
    # 100 ms is promised; modules may have to be compiled, on a machine with other work.
    assert found["took"] < 1.0


def test_constants_that_are_repeated_to_save_an_import_agree():
    assert schema.RESERVED_NAMESPACE == naming.RESERVED_NAMESPACE
    assert schema.VERSION_RECORD == naming.VERSION_RECORD
    assert usage.HOUR_MS == image.HOUR_MS
    assert usage.by_plain_name({f"rpm{in_force.ALIAS}x": (1, 2)}) == {"rpm": (1, 2)}
