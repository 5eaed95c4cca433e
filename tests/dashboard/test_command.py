"""The command itself: its link, its errors, and the extra that it needs."""

import re
import subprocess
import sys

import pytest

from zae_limiter import SyncRepository

PROGRAM = [sys.executable, "-m", "zae_limiter"]
WITHOUT_THE_EXTRA = """
import sys
sys.modules["starlette"] = None
from zae_limiter_ops.cli import main
sys.argv = ["zae-limiter", *{args!r}]
sys.exit(main())
"""


@pytest.fixture
def store(tmp_path):
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    SyncRepository.open("default", url=url).close()
    return url


def run(*command):
    return subprocess.run(list(command), capture_output=True, text=True, check=False, timeout=100)


def test_the_command_prints_its_link_on_a_line_of_its_own(store):
    command = [*PROGRAM, "dashboard", "--no-open", "--port", "0", "--url", store]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        process.terminate()
        _, errors = process.communicate()
    assert re.fullmatch(r"dashboard at http://127\.0\.0\.1:\d+/#token=[\w-]{40,}\n", line)
    assert "token" not in errors


def test_a_missing_store_is_told_before_the_page_is_served(tmp_path):
    done = run(*PROGRAM, "dashboard", "--no-open", "--url", f"sqlite:///{tmp_path / 'none.db'}")
    assert done.returncode == 1
    assert "no store at" in done.stderr
    assert done.stdout == ""


def test_the_page_is_served_although_the_store_does_not_answer(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    url = "dynamodb://my-app?region=us-east-1&endpoint_url=http://127.0.0.1:9"
    command = [*PROGRAM, "dashboard", "--no-open", "--port", "0", "--url", url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        process.terminate()
        _, errors = process.communicate()
    assert line.startswith("dashboard at http://127.0.0.1:")
    assert "no connection to http://127.0.0.1:9" in errors
    assert "the page shows this until the store answers" in errors


def test_an_open_address_is_refused(store):
    done = run(*PROGRAM, "dashboard", "--no-open", "--url", store, "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--certificate" in done.stderr


def test_without_the_extra_the_command_says_what_to_install(store):
    args = ["dashboard", "--no-open", "--url", store]
    done = run(sys.executable, "-c", WITHOUT_THE_EXTRA.format(args=args))
    assert done.returncode == 1
    assert 'pip install "/path/to/zae-limiter[dashboard]"' in done.stderr
    help_text = run(sys.executable, "-c", WITHOUT_THE_EXTRA.format(args=["--help"]))
    assert "dashboard" in help_text.stdout
