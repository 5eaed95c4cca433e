"""Users of zae_limiter_lab.locust, in a process of their own, which Locust patches for gevent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zae_limiter import SyncRepository
from zae_limiter_lab.loadtest.ledger import check_ledger

PROGRAM = Path(__file__).with_name("users.py")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/limits.db"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def said(url, ledger):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), url, str(ledger)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"stderr": done.stderr}


def test_a_rejection_ends_a_task_quietly_and_is_no_failure(said):
    assert said["quiet"]["entered"] == 5
    assert said["quiet"]["begun"] > 10
    begun, limited = said["quiet"]["begun"], said["requests"]["RATE_LIMITED named"]
    assert 0 <= begun - 5 - limited[0] <= 10  # before the limits were stored, acquires failed
    assert limited[1] == 0


def test_each_call_is_a_request_of_its_kind_under_its_name(said):
    requests = said["requests"]
    assert requests["COMMIT named"] == [5, 0]
    assert requests["ACQUIRE named"][0] == 5
    assert requests["ACQUIRE api"][0] == said["caught"]["entered"] == 5
    assert requests["AVAILABLE api"][0] > 5
    assert requests["SET_RESOURCE_DEFAULTS set_resource_defaults"] == [1, 0]
    assert requests["CREATE_ENTITY create"] == [1, 0]


def test_creating_again_is_neither_a_request_nor_a_failure(said):
    assert "CREATE_ENTITY create_entity" not in said["requests"]


def test_a_task_may_catch_a_rejection(said):
    assert said["caught"]["rpm"] == said["requests"]["RATE_LIMITED api"][0] > 5


def test_all_users_share_one_limiter_and_a_pool(said):
    assert said["limiters"] == said["shared"] == 1
    assert said["pool"] == 3  # of BOTO3_MAX_POOL, all of them free again


def test_mistakes_of_a_locustfile_are_loud(said):
    """Users that came before the limits were stored: Locust shows these as exceptions."""
    assert said["exceptions"]
    assert all("limits" in text for text in said["exceptions"])
    assert said["unavailable"]


def test_the_host_is_a_stack_or_a_store(said, url):
    hosts = said["hosts"]
    assert hosts[url].endswith("limits.db")
    assert hosts["memory://a"] == "a"
    assert hosts["None"] == "from-environment"
    assert "must be memory://, sqlite:///relative.db" in hosts["http://x"]
    assert "a_b" in hosts["a_b"]


def test_a_locustfile_that_cannot_run_is_one_clear_line(said):
    mistakes = said["mistakes"]
    assert mistakes["none.py"] == "none.py has no user class; derive one from RateLimiterUser"
    assert "syntax.py, line 1: " in mistakes["syntax.py"]
    assert "fails to import: ModuleNotFoundError: No module named" in mistakes["import.py"]
    assert mistakes["class.py"] == "class.py has no user class 'Other'; it has Any"


def test_the_example_of_the_documents_is_a_locustfile(said):
    assert said["documented"] == ["MyUser"]


def test_the_ledger_of_users_is_what_the_store_has_counted(said, url, ledger):
    with SyncRepository.open(url=url) as repository:
        found = check_ledger(ledger, repository)
    assert found.problems == ()
    assert (found.admitted, found.tokens) == (10, {"rpm": 10})


def test_without_locust_one_line_says_what_to_install():
    script = "import sys; sys.modules['locust'] = None; import zae_limiter_lab.locust"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.splitlines()[-1]
    assert 'zae_limiter_lab.locust needs Locust: pip install "/path/to/zae-limiter[bench]"' in last
    assert "During handling" not in done.stderr
