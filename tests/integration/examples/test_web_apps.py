"""Every web example, as it stands, on a real server with two workers."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.support.web_servers import fetch_sync, hang_up_sync
from zae_limiter import Limit, SyncRepository

ROOT = Path(__file__).parents[3]
GUIDES = [DOCS / f"guide/web-{name}.md" for name in ("fastapi", "flask", "django")]
KEY = {"x-api-key": "key"}
PATIENCE_S = 120  # of a busy machine
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
UVICORN = ("uvicorn", "--port", "0", "--workers", "2")
GUNICORN = ("gunicorn", "--bind", "127.0.0.1:0", "--workers", "2")
EXAMPLES = {
    "examples.fastapi_app:app": UVICORN,
    "examples.starlette_app:app": UVICORN,
    "examples.flask_app:app": (*GUNICORN, "--preload"),
    "examples.django_app:application": GUNICORN,
}
SEARCHING = ("fastapi_app:app", "django_app:application")


@contextmanager
def serving(app, folder, *more_options):
    """Start the example's server in a folder of its own; yields the port. It ends by SIGTERM."""
    server, *options = EXAMPLES[app]
    log = folder / "server.log"
    others = {name: value for name, value in os.environ.items() if not name.startswith("ZAEL_")}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", server, app, *options, *more_options],
            stdout=output,
            stderr=output,
            cwd=folder,
            env={
                **others,
                "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
                "ZAEL_KEY_SECRET": "change-me",  # as the command of the example says
            },
        )
    try:
        yield listening_port(process, log)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert process.returncode in (0, -15), log.read_text()
    assert "Traceback" not in log.read_text()


def listening_port(process, log):
    """Wait until the server listens where it says; return the port."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        said = ADDRESS.search(log.read_text())
        if said is not None and is_open(int(said[1])):
            return int(said[1])
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end_s, log.read_text()
        time.sleep(0.05)


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), 30).close()
    except ConnectionRefusedError:  # workers listen once the application has started
        return False
    return True


def statuses(port, count, path="/"):
    return [fetch_sync(port, path, KEY).status for _ in range(count)]


def opened(folder):
    return SyncRepository.open(url=f"sqlite:///{folder}/limits.db", request_timeout=10)


@pytest.mark.parametrize("app", EXAMPLES)
def test_an_example_runs_as_it_stands_and_its_workers_share_the_limit(app, tmp_path):
    admitted = 20 if "django" in app else 10
    with serving(app, tmp_path) as port:
        found = statuses(port, admitted + 3)
        assert found == [200] * admitted + [429] * 3
        refused = fetch_sync(port, "/", KEY)
        assert int(refused.headers["retry-after"]) > 0
    with opened(tmp_path) as repository:
        usage = repository.get_usage_summary(window_type="hourly")
        assert usage.rejected == 4, "counted when the workers close their limiters"
        buckets = repository.list_buckets()[0]
    assert KEY["x-api-key"] not in {each.entity_id for each in buckets}, "no secret is an id"


@pytest.mark.parametrize(
    ("app", "resource"),
    [
        ("examples.flask_app:app", "flask"),
        pytest.param("examples.fastapi_app:app", "fastapi", marks=pytest.mark.slow),
    ],
)
def test_a_restart_keeps_what_an_operator_has_set(app, resource, tmp_path):
    with serving(app, tmp_path) as port:
        assert statuses(port, 1) == [200]
    with opened(tmp_path) as repository:
        repository.set_resource_defaults(resource, [Limit.per_hour("rph", 3)], principal="operator")
        before = repository.get_audit_events()
    with serving(app, tmp_path) as port:
        found = statuses(port, 4)
        assert found[-1] == 429
        assert found.count(200) <= 3
    with opened(tmp_path) as repository:
        assert repository.get_audit_events() == before


@pytest.mark.slow
@pytest.mark.parametrize("app", EXAMPLES)
def test_an_example_works_in_a_filled_store_and_in_its_outages(app, tmp_path):
    """Other programs have filled the store, as the quick start of the README leaves it."""
    others = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 10_000)]
    with opened(tmp_path) as repository:
        repository.set_system_defaults(others, on_unavailable="allow")
        repository.set_resource_defaults("api", others)
    # A second worker might start in the outage, which stops it.
    with serving(app, tmp_path, "--workers", "1") as port:
        answer = fetch_sync(port, "/", KEY)
        assert answer.status == 200
        assert "rpm" not in answer.headers["ratelimit"]
        with closing(sqlite3.connect(tmp_path / "limits.db")) as other:
            other.execute("BEGIN EXCLUSIVE")  # no worker can charge anything meanwhile
            pages = ["/", "/search?q=limit"] if app.endswith(SEARCHING) else ["/"]
            assert [fetch_sync(port, page, KEY).status for page in pages] == [200] * len(pages)
            assert "ratelimit" not in fetch_sync(port, "/", KEY).headers


def assert_that_health_is_not_limited(port):
    assert {fetch_sync(port, "/health").status for _ in range(15)} == {200}
    assert fetch_sync(port, "/").status == 401


def test_a_search_of_fastapi_costs_what_it_has_used(tmp_path):
    with serving("examples.fastapi_app:app", tmp_path) as port:
        assert_that_health_is_not_limited(port)
        found = fetch_sync(port, "/search?q=limit", KEY)
        assert found.json()["tokens_left"] == 980
        assert found.headers["ratelimit"].startswith('"tph";r=980;'), "its own limit alone"
        assert fetch_sync(port, "/search?q=lease", KEY).json()["tokens_left"] == 970


def test_a_report_of_flask_costs_what_was_sent(tmp_path):
    with serving("examples.flask_app:app", tmp_path) as port:
        assert_that_health_is_not_limited(port)
        assert len(fetch_sync(port, "/report?lines=990", KEY).body) == 99_000
        # 99 of 100 kilobytes are gone: the next report, however short, takes the limit into debt.
        assert fetch_sync(port, "/report?lines=50", KEY).status == 200
        assert fetch_sync(port, "/", KEY).json()["error"] == "rate_limit_exceeded"
        hang_up_sync(port, "/report?lines=100000", b"3\n", {"x-api-key": "other"})


def test_a_search_of_django_costs_more(tmp_path):
    with serving("examples.django_app:application", tmp_path) as port:
        credits_left = [fetch_sync(port, page).json()["credits"] for page in ("/search", "/")]
        assert credits_left == [15, 14]


@pytest.mark.parametrize("app", EXAMPLES)
def test_the_guide_shows_the_example_as_it_is(app):
    path = ROOT / app.partition(":")[0].replace(".", "/")
    shown = [block for guide in GUIDES for block in blocks(guide, "py")]
    assert path.with_suffix(".py").read_text(encoding="utf-8") in shown
