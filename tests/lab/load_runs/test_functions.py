"""The function and the Fargate program of a load-test stack, run for real on the local server."""

import json
import sys
import threading
from pathlib import Path

import pytest

from tests.lab.load_runs.conftest import CREDENTIALS
from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.orchestrator import Orchestrator, WorkerFleet, worker_payload
from zae_limiter_lab.loadtest.worker import handler

EXAMPLES = str(Path(__file__).parents[3] / "examples/locust")
PORT = 15_557  # of the master
MAX = "locustfiles/max_rps.py"


class Context:
    """What Lambda says of an invocation."""

    def __init__(self, seconds=100):
        self._seconds = seconds

    def get_remaining_time_in_millis(self):
        return self._seconds * 1000


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def test_the_handler_runs_users_and_answers_with_a_report(table):
    plan = {"file": MAX, "folder": EXAMPLES, "classes": ["MaxRpsUser"], "host": table}
    event = {"mode": "headless", "plan": {**plan, "users": 3, "seconds": 1.0}}
    answer = json.loads(json.dumps(handler(event, Context())))
    report = answer["report"]
    assert (report["failures"], report["errors"], report["users"]) == (0, [], 3)
    assert report["admitted"] > 3
    assert report["workers"][0]["writes"] > 3
    assert "locust" not in sys.modules  # a warm function stays as it was


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"file": MAX, "seconds": 900.0}, "a function can run users for 75 s; give a shorter"),
        pytest.param(
            {"file": "locustfiles/none.py", "seconds": 1.0},
            "there is no locustfile at",
            marks=pytest.mark.slow,  # starts a process
        ),
    ],
)
def test_a_plan_that_cannot_run_is_one_line(plan, said):
    event = {"mode": "headless", "plan": {"folder": EXAMPLES, "host": "memory://", **plan}}
    with pytest.raises(LoadTestError, match=said):
        handler(event, Context())


def test_a_run_whose_caller_waits_for_the_answer_ends_before_a_network_drops_the_connection():
    plan = {"file": MAX, "folder": EXAMPLES, "host": "memory://", "seconds": 300.0}
    with pytest.raises(LoadTestError, match="a function can run users for 270 s; give a shorter"):
        handler({"mode": "headless", "plan": plan}, Context(900))


@pytest.mark.slow  # six seconds of CPU
def test_a_master_with_functions_that_work_for_it(table):
    """The real master and the real handler; only the invocation is a thread instead of Lambda."""
    plan = LoadPlan(MAX, ("MaxRpsUser",), EXAMPLES, users=4, seconds=2.0, workers=2, host=table)
    control = InvokingControl()
    fleet = WorkerFleet(control, "worker", worker_payload(plan, "127.0.0.1", PORT), 2)
    files = Files()
    assert Orchestrator(plan, fleet, files, port=PORT).run() == 0
    report = files.documents["report"]["report"]
    assert (report["failures"], len(report["workers"])) == (0, 2)
    assert report["admitted"] > 10
    for thread in control.threads:
        thread.join(30)
    assert control.answers == [{"finished": True}] * 2


class InvokingControl:
    """Runs the handler in a thread where Lambda would run the function."""

    def __init__(self):
        self.threads, self.answers = [], []

    def call(self, service, operation, *, Payload, **_):  # noqa: N803
        event = json.loads(Payload)
        event["plan"]["folder"] = EXAMPLES
        run = lambda: self.answers.append(handler(event, Context()))  # noqa: E731
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        return {}


class Files:
    def __init__(self):
        self.documents = {}

    def put(self, name, document):
        self.documents[name] = document
