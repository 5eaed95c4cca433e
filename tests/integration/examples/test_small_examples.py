"""The examples for Flask and Django."""

import subprocess
import sys
from pathlib import Path

from examples import flask_app
from tests.support.web_servers import fetch_sync, hang_up_sync, wsgi_server
from zae_limiter import SyncRateLimiter, SyncRepository

ROOT = Path(__file__).parents[3]
KEY = {"x-api-key": "key"}


def test_flask(tmp_path):
    with (
        SyncRepository.open(url=f"sqlite:///{tmp_path}/flask.db") as repository,
        wsgi_server(flask_app.make_app(SyncRateLimiter(repository=repository))) as port,
    ):
        assert fetch_sync(port, "/", KEY).json() == {"hello": "world"}
        report = fetch_sync(port, "/report?lines=990", KEY)
        assert len(report.body) == 99_000
        # 99 of 100 kilobytes are gone: the next report, however short, takes the limit into debt.
        assert fetch_sync(port, "/report?lines=50", KEY).status == 200
        rejected = fetch_sync(port, "/", KEY)
        assert rejected.status == 429
        assert rejected.json()["error"] == "rate_limit_exceeded"
        hang_up_sync(port, "/report?lines=100000", b"3\n", {"x-api-key": "other"})


DJANGO = """
import json, threading
from examples import django_app
from tests.support.web_servers import fetch_sync, wsgi_server
with wsgi_server(django_app.application) as port:
    pages = [fetch_sync(port, "/search") for _ in range(5)]
    pages.append(fetch_sync(port, "/"))
print(json.dumps([[page.status, page.json().get("credits")] for page in pages]))
"""


def test_django(tmp_path):
    """In a process of its own: a process has one Django site."""
    done = subprocess.run(
        [sys.executable, "-c", DJANGO],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/src", "ZAEL_URL": f"sqlite:///{tmp_path}/django.db"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[[200, 15], [200, 10], [200, 5], [200, 0], [429, null], [429")
