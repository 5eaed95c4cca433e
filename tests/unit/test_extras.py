"""Without its extra, each documented part says what it needs and how that is installed."""

import subprocess
import sys

import pytest

CHART = (
    "from zae_limiter import UsageSnapshot\n"
    "from zae_limiter.visualization import UsageFormatter, format_usage_snapshots\n"
    "day = UsageSnapshot('a', 'r', '2026-01-01T00:00:00Z', '', 'daily', {'tpm': 1}, 1)\n"
    "format_usage_snapshots([day], UsageFormatter.PLOT)"
)


@pytest.mark.parametrize(
    ("missing", "program", "extra"),
    [
        ("opentelemetry", "import zae_limiter.telemetry", "otel"),
        ("aws_cdk", "import zae_limiter.cdk", "cdk"),
        ("locust", "import zae_limiter.locust", "bench"),
        ("plotext", CHART, "plot"),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(missing, program, extra):
    script = f"import sys; sys.modules[{missing!r}] = None\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(("ImportError: ", "ModuleNotFoundError: "))
    assert " needs " in last
    assert f'pip install "/path/to/zae-limiter[{extra}]"' in last
