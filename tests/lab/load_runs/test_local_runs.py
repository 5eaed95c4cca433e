"""``loadtest run`` and ``tune`` on this machine: real masters and workers, on real stores."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.lab.load_runs.conftest import CREDENTIALS
from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.terminal import INTERRUPTIBLE, MODULE, environment, run_command
from tests.ops.cli.test_reference import LEAVES, documented
from zae_limiter_lab.loadtest import LoadPlan
from zae_limiter_lab.loadtest.processes import NodeProcess

EXAMPLES = str(Path(__file__).parents[3] / "examples/locust")
LLM = ("-C", EXAMPLES, "-f", "locustfiles/llm_gateway.py")
SIMPLE = ("-C", EXAMPLES, "-f", "locustfiles/simple.py")
COMMANDS = dict(LEAVES)
run = partial(run_command, *MODULE)


def fields_of(command):
    return documented(COMMANDS["loadtest", command])


@pytest.mark.slow
def test_two_workers_on_dynamodb_and_a_ledger_that_holds(table, tmp_path):
    page = tmp_path / "report.html"
    found = run(
        *("loadtest", "run", *LLM, "--url", table, "--users", "6", "--workers", "2"),
        *("--duration", "2", "--verify", "--html", page, "--output", "json"),
        LOADTEST_ENTITIES=12,
        **CREDENTIALS,
    )
    assert (found.returncode, found.stderr) == (0, ""), found.stderr + found.stdout
    data = json.loads(found.stdout)
    names, inner = fields_of("run")
    assert data.keys() == names
    assert all(row.keys() == inner["requests"] for row in data["requests"])
    assert (data["place"], data["failures"], data["errors"]) == ("local", 0, [])
    assert len(data["workers"]) == 2
    assert all(worker["writes"] > 0 < worker["cpu_share"] for worker in data["workers"])
    assert data["admitted"] > 20
    assert data["writes_per_second"] > 0
    kinds = {row["kind"] for row in data["requests"]}
    assert {"ACQUIRE", "COMMIT"} <= kinds <= {"ACQUIRE", "COMMIT", "RATE_LIMITED"}
    ledger = data["ledger"]
    assert (ledger["problems"], ledger["limits"] > 10) == ([], True)
    # What came before the measurement began is in the ledger, too.
    assert ledger["admitted"] >= data["admitted"]
    assert "<html" in page.read_text(encoding="utf-8")


@pytest.mark.slow  # it keeps all cores busy for some seconds
def test_users_with_pauses_are_not_bound_by_a_busy_machine():
    burn = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(burn) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        found = run(
            *("loadtest", "run", *SIMPLE, "SimpleUser", "--users", "5", "--duration", "4"),
            *("--output", "json"),
        )
    finally:
        for process in others:
            process.kill()
            process.wait()
    data = json.loads(found.stdout)
    assert data["machine_cpu"] > 0.9
    assert data["bound"] == "users", data["bound_reason"]
    (worker,) = data["workers"]
    assert worker["cpu_share"] + worker["cpu_wait_share"] < 0.85


def test_ctrl_c_and_lost_workers_end_in_a_report(tmp_path):
    pids = tmp_path / "pids"
    (tmp_path / "locustfile.py").write_text(
        "import os\n"
        "from locust import constant, task\n"
        "from zae_limiter import Limit\n"
        "from zae_limiter_lab.locust import RateLimiterUser\n"
        "class AnyUser(RateLimiterUser):\n"
        "    wait_time = constant(0.01)\n"
        "    def on_start(self):\n"
        f"        with open({str(pids)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
        "    @task\n"
        "    def acquire(self):\n"
        "        limits = [Limit.per_minute('rpm', 10**6)]\n"
        "        with self.client.acquire('a', 'b', {'rpm': 1}, limits): pass\n"
    )
    command = [*MODULE, "loadtest", "run", "-C", str(tmp_path), "--users", "2", "--workers", "2"]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command, "--duration", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=tmp_path),
    ) as process:
        said = [process.stderr.readline()]
        while not pids.exists() or len(pids.read_text().splitlines()) < 2:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        workers = [int(line) for line in pids.read_text().splitlines()]
        os.kill(workers[0], signal.SIGKILL)
        said.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert said[0].startswith(
        "load test on this machine: 2 workers, 2 users, 600 s, on a temporary"
    )
    assert "was killed by SIGKILL; the test goes on without it" in said[1]
    assert (process.returncode, err) == (130, ""), err
    assert "ACQUIRE" in out
    assert "problem: worker " in out
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(tmp_path.glob("zael-loadtest-*"))


@pytest.mark.slow  # five seconds of CPU; tests/lab/loadtest has the search itself
def test_tune_finds_a_number_of_users():
    found = run(
        *("loadtest", "tune", *SIMPLE, "SimpleUser", "--users", "2", "--duration", "0.5"),
        *("--max-latency", "5000", "--output", "json"),
    )
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    data = json.loads(found.stdout)
    names, inner = fields_of("tune")
    assert data.keys() == names
    assert [step["users"] for step in data["steps"]] == [1, 2]
    assert all(step.keys() == inner["steps"] for step in data["steps"])
    assert data["best_users"] == 2


@pytest.mark.slow  # five seconds of CPU
def test_a_test_ends_with_its_shape(tmp_path):
    """Locust alone would quit at once, and lose the last reports of its workers."""
    (tmp_path / "locustfile.py").write_text(
        "from locust import LoadTestShape, constant, task\n"
        "from zae_limiter import Limit\n"
        "from zae_limiter_lab.locust import RateLimiterUser\n"
        "class AnyUser(RateLimiterUser):\n"
        "    wait_time = constant(0.05)\n"
        "    @task\n"
        "    def acquire(self):\n"
        "        limits = [Limit.per_minute('rpm', 10**6)]\n"
        "        with self.client.acquire('a', 'b', {'rpm': 1}, limits): pass\n"
        "class Short(LoadTestShape):\n"
        "    def tick(self):\n"
        "        return (3, 3.0) if self.get_run_time() < 3 else None\n"
    )
    found = run(
        *("loadtest", "run", "-C", tmp_path, "--duration", "600", "--verify", "--output", "json")
    )
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    data = json.loads(found.stdout)
    assert data["seconds"] < 60
    assert data["ledger"]["problems"] == []
    assert 0 < data["ledger"]["admitted"] - 10 <= data["admitted"] <= data["ledger"]["admitted"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-f", "nothing.py"), "there is no locustfile at"),
        ((*SIMPLE, "--aws"), "no load-test stack"),
    ],
)
def test_what_cannot_run_is_one_line(args, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZAEL_URL", raising=False)
    assert said in CommandLine(capsys, None)("loadtest", "run", *args).error(1)


@pytest.mark.slow  # the messages themselves: test_users.py
def test_what_the_master_finds_wrong_is_one_line_after_the_first(tmp_path):
    url = f"sqlite:///{tmp_path}/nothing/limits.db"
    found = run("loadtest", "run", *SIMPLE, "--url", url)
    assert found.returncode == 1
    first, last = found.stderr.splitlines()
    assert first.startswith("load test on this machine")
    assert last.startswith("error: no infrastructure named")


@pytest.mark.slow  # a second of CPU
def test_a_file_named_locust_is_not_taken_for_locust(tmp_path, monkeypatch):
    (tmp_path / "locust.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    plan = LoadPlan("locust.py", folder=str(tmp_path))
    node = NodeProcess(plan, ("alone",), tmp_path / "node.log")
    try:
        message = json.loads(node.messages.readline())
    finally:
        node.kill()
    assert message["text"].startswith("locust.py has no user class")
