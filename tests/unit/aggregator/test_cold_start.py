"""What a cold start of the function imports."""

import subprocess
import sys

from zae_limiter import naming, schema
from zae_limiter.admission import image, in_force
from zae_limiter.dynamodb.items import usage

NEVER = {"aiohttp", "asyncio", "boto3", "botocore", "click", "gzip", "rich", "sqlite3"}
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


def test_constants_that_are_repeated_to_save_an_import_agree():
    assert schema.RESERVED_NAMESPACE == naming.RESERVED_NAMESPACE
    assert schema.VERSION_RECORD == naming.VERSION_RECORD
    assert usage.HOUR_MS == image.HOUR_MS
    assert usage.by_plain_name({f"rpm{in_force.ALIAS}x": (1, 2)}) == {"rpm": (1, 2)}
