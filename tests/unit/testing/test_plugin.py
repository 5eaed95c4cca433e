"""The pytest plugin, in a pytest of its own; and the examples of docs/guide/testing.md."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/guide/testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN = "zae_limiter.testing.plugin"

TESTS = """
import pytest
from zae_limiter import Limit, RateLimiter, SyncRateLimiter, RateLimitExceeded

RPM = Limit.per_minute("rpm", 2)

async def test_the_clock_moves_the_limiter(zae_rate_limiter, zae_clock):
    assert type(zae_rate_limiter) is RateLimiter
    await zae_rate_limiter.set_system_defaults([RPM])
    async with zae_rate_limiter.acquire("key", "api", {"rpm": 2}):
        pass
    assert await zae_rate_limiter.time_until_available("key", "api", {"rpm": 1}) == 30
    zae_clock.advance(seconds=30)
    assert await zae_rate_limiter.available("key", "api") == {"rpm": 1}

def test_the_sync_twin(zae_sync_rate_limiter, zae_clock):
    assert type(zae_sync_rate_limiter) is SyncRateLimiter
    assert zae_sync_rate_limiter.get_system_defaults() == ([], None)  # a store of its own
    zae_sync_rate_limiter.set_system_defaults([RPM])
    with zae_sync_rate_limiter.acquire("key", "api", {"rpm": 2}):
        pass
    with pytest.raises(RateLimitExceeded), zae_sync_rate_limiter.acquire("key", "api", {"rpm": 1}):
        pass
    zae_clock.advance(minutes=1)
    assert zae_sync_rate_limiter.available("key", "api") == {"rpm": 2}

async def test_both_are_one_store(zae_rate_limiter, zae_sync_rate_limiter):
    zae_sync_rate_limiter.set_system_defaults([RPM])
    async with zae_rate_limiter.acquire("key", "api", {"rpm": 2}):
        pass
    assert zae_sync_rate_limiter.available("key", "api") == {"rpm": 0}
"""


def run_pytest(folder, source, *options):
    """Run pytest with our plugin and the one for async tests, and no others."""
    (folder / "test_it.py").write_text(source, encoding="utf-8")
    settings = "asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"
    words = [word for setting in (*settings, "filterwarnings=error") for word in ("-o", setting)]
    plugins = "-p", PLUGIN, "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *words, *options, folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_the_fixtures(tmp_path):
    done = run_pytest(tmp_path, TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_fixtures_are_listed_with_a_description(tmp_path):
    done = run_pytest(tmp_path, TESTS, "--fixtures")
    for name in ("zae_clock", "zae_rate_limiter", "zae_sync_rate_limiter"):
        described = re.search(rf"^{name} -- .*\n    \w.*", done.stdout, re.MULTILINE)
        assert described, done.stdout


def test_the_tests_of_the_page_pass(tmp_path):
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    tests = "\n".join(block for block in blocks if "def test_" in block)
    done = run_pytest(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(re.findall('def test_', tests))} passed" in done.stdout


def test_the_plugin_loads_nothing_heavy():
    code = (
        f"import pytest, sys; before = set(sys.modules); import {PLUGIN}; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("zae_limiter")}
    assert ours <= {
        "zae_limiter",
        "zae_limiter._version",
        "zae_limiter.exceptions",
        "zae_limiter.testing",
        "zae_limiter.testing.clock",
        "zae_limiter.testing.outage",
        "zae_limiter.testing.plugin",
    }
    assert not {"asyncio", "botocore", "click", "sqlite3"} & set(loaded)


def test_the_entry_point_names_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"zae_limiter": PLUGIN}
