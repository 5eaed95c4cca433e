"""``zae-limiter local`` with the default server: started, used, stopped, killed, found taken."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.terminal import CTRL_C, MODULE, terminal
from tests.ops.cli.test_reference import LEAVES, documented
from tests.support.dynamodb import DynamoServer
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.clock import Deadline
from zae_limiter_ops.local import HOST, processes, store_url
from zae_limiter_ops.local.service import LocalService

# Refills so slowly that what is missing is what was charged.
TOKENS = Limit.custom("tokens", 10_000, 1, 86_400)


@pytest.fixture
def use_env(local, monkeypatch):
    """Set the variables that ``local env`` prints."""

    def use():
        for name, value in local("env", "--output", "json").json.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return use


def opened():
    repository = SyncRepository.open()
    limiter = SyncRateLimiter(repository)
    limiter.set_system_defaults([TOKENS])
    return repository, limiter


def charge(limiter):
    with limiter.acquire("key", "api", {"tokens": 1}):
        pass


def left():
    """What a new client finds."""
    with SyncRepository.open() as repository:
        return SyncRateLimiter(repository).available("key", "api")["tokens"]


def test_a_server_is_started_used_and_stopped_and_keeps_its_tables(local, up, use_env, port):
    first = up("--name", "my-app")
    assert (first["state"], first["engine"], first["started"]) == ("running", "dynoxide", True)
    use_env()
    repository, limiter = opened()
    charge(limiter)
    repository.close()
    down = local("down", "--output", "json").json
    assert (down["engine"], down["stopped"], down["kept"]) == ("dynoxide", True, first["data"])
    assert processes.start_token(first["pid"]) is None
    again = up()
    assert (again["started"], again["stacks"]) == (True, ["my-app"])
    assert left() == TOKENS.capacity - 1


def test_up_twice_is_one_server(local, up):
    first, second = up(), up("--name", "my-app")
    assert (first["started"], second["started"]) == (True, False)
    assert first["pid"] == second["pid"]
    assert local("status", "--output", "json").json["stacks"] == ["my-app"]


def test_the_fields_are_those_that_are_documented(local, up):
    started = up()
    status = local("status", "--output", "json").json
    names, _ = documented(dict(LEAVES)["local", "status"])
    assert status.keys() == names
    assert started.keys() == names | {"started"}
    down = local("down", "--output", "json").json
    assert down.keys() == documented(dict(LEAVES)["local", "down"])[0]


def test_people_read_tables_and_are_told_what_comes_next(local, up, port):
    ran = local("up", "--port", port, "--name", "my-app")
    assert ran.out.startswith("dynoxide is running\n")
    assert 'eval "$(zae-limiter local env)"' in ran.err
    status = local("status")
    assert f"http://127.0.0.1:{port}" in status.out
    assert "running, answers in" in status.out
    assert local("logs").out.startswith("Dynoxide listening on")
    assert local("down").out == "dynoxide is stopped\n"
    assert local("down").out == "no local server is running\n"
    assert "zae-limiter local up" in local("status").error(1)
    assert "zae-limiter local up" in local("env").error(1)
    assert local("status", "--output", "json").code == 1
    assert "Dynoxide listening on" in local("logs").out


def test_commands_that_start_it_at_once_start_one(home, port):
    command = [*MODULE, "local", "up", "--port", str(port), "--output", "json"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    found = [json.loads(process.communicate()[0]) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len({fields["pid"] for fields in found}) == 1
    assert sum(fields["started"] for fields in found) == 1


def test_the_server_outlives_the_command_and_its_session(home, port):
    command = [*MODULE, "local", "up", "--port", str(port), "--output", "json"]
    done = subprocess.run(command, capture_output=True, check=True, start_new_session=True)
    pid = json.loads(done.stdout)["pid"]
    assert os.getpgid(pid) == pid != os.getpid()
    assert LocalService().status().state == "running"


# --- killed ----------------------------------------------------------------------------------


def ended_status(local):
    """Return the status of a killed server, once the system has taken its process down."""
    end_s = time.monotonic() + 10
    while "ended" not in (status := local("status")).out and time.monotonic() < end_s:
        time.sleep(0.05)
    return status


def test_kill_9_loses_no_acknowledged_charge(local, up, use_env):
    server = up()
    use_env()
    repository, limiter = opened()
    charge(limiter)
    charged, unknown, enough = [1], [0], threading.Event()

    def call():
        while True:
            try:
                charge(limiter)
            except RateLimiterUnavailable:
                unknown.append(1)  # it may have been committed
                return
            charged.append(1)
            if len(charged) > 100:
                enough.set()

    with ThreadPoolExecutor(4) as callers:
        for _ in range(4):
            callers.submit(call)
        assert enough.wait(60)
        os.kill(server["pid"], signal.SIGKILL)
    repository.close()
    status = ended_status(local)
    assert status.code == 1
    assert "ended" in status.out
    assert up()["stacks"] == []
    # A call that ended without an answer has at most one charge and its refund under way.
    spent = TOKENS.capacity - left()
    assert sum(charged) <= spent <= sum(charged) + sum(unknown)


def test_a_charge_that_was_acknowledged_just_before_is_there(local, up, use_env):
    server = up()
    use_env()
    repository, limiter = opened()
    for count in range(1, 4):
        charge(limiter)
        os.kill(server["pid"], signal.SIGKILL)
        server = up()
        assert left() == TOKENS.capacity - count
    repository.close()


def test_a_server_that_hangs_is_reported(local, up):
    pid = up()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        ran = local("status", "--output", "json")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (ran.code, json.loads(ran.out)["state"]) == (1, "not answering")
    assert local("status", "--output", "json").json["state"] == "running"


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": -1}', '{"engine": "dynoxide"}'])
def test_a_record_that_cannot_be_read_is_replaced(local, up, home, record):
    folder = home / "state" / "zae-limiter"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text(record)
    assert local("down", "--output", "json").json["stopped"] is False
    assert up()["started"] is True


def change_record(home, **fields):
    file = home / "state" / "zae-limiter" / "server.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_another_process_with_the_number_of_the_server_is_left_alone(local, up, home):
    server = up()
    time.sleep(0.02)  # two processes of the same hundredth of a second have the same start token
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        change_record(home, pid=other.pid)
        assert local("status", "--output", "json").code == 1
        assert local("down", "--output", "json").json["stopped"] is False
        assert other.poll() is None
    assert processes.end(server["pid"], processes.start_token(server["pid"]))


def test_a_record_from_before_a_reboot_is_recovered(local, up, home):
    server = up("--name", "my-app")
    token = processes.start_token(server["pid"])
    processes.end(server["pid"], token)
    change_record(home, pid=1, token=f"another-boot:{token.rpartition(':')[2]}")
    again = up()
    assert (again["started"], again["stacks"]) == (True, ["my-app"])


def test_after_a_crash_it_is_started_again_as_it_was(local, up, port):
    server = up("--name", "my-app")
    os.kill(server["pid"], signal.SIGKILL)
    again = local("up", "--output", "json").json
    assert (again["started"], again["port"], again["stacks"]) == (True, port, ["my-app"])


def test_a_start_that_fails_forgets_nothing(local, up):
    server = up("--name", "my-app")
    assert processes.end(server["pid"], processes.start_token(server["pid"]))
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        holder.listen()
        assert "is taken" in local("up", "--port", holder.getsockname()[1]).error(1)
    assert LocalService().status().state == "ended"
    assert up()["stacks"] == ["my-app"]


# --- what is not ours ------------------------------------------------------------------------


def test_a_taken_port_is_reported_with_a_way_out(local, port):
    with socket.socket() as holder:
        holder.bind((HOST, port))
        holder.listen()
        line = local("up", "--port", port).error(1)
    assert f"port {port} is taken by another program (lsof -i :{port} names it)" in line
    assert line.endswith(f"zae-limiter local up --port {port + 1}")


def test_down_stops_only_what_up_has_started(local, up):
    with DynamoServer() as other:
        up()
        assert local("down", "--output", "json").json["stopped"] is True
        assert processes.start_token(other.pid) is not None
        assert local("down", "--output", "json").json["stopped"] is False
        assert processes.start_token(other.pid) is not None


def test_another_server_than_the_running_one_is_refused(local, up, port):
    up()
    for words in (("--engine", "ministack"), ("--port", port + 1)):
        line = local("up", *words).error(1)
        assert f"dynoxide is running on port {port}; stop it first" in line


def test_only_this_user_can_read_what_is_stored(up, home):
    previous = os.umask(0o022)
    try:
        up("--name", "my-app")
    finally:
        os.umask(previous)
    folder = home / "state" / "zae-limiter"
    for path in (folder, *folder.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_data_is_deleted_on_request_only(local, up, home):
    data = Path(up()["data"])
    assert "add --yes" in local("down", "--delete-data").error(2)
    assert LocalService().status().state == "running"
    deleted = local("down", "--delete-data", "--yes", "--output", "json").json
    assert deleted["deleted"] == [str(data.parent)]
    assert not data.exists()
    assert up("--name", "other")["stacks"] == ["other"]


# --- what clients get ------------------------------------------------------------------------


def test_a_shell_evaluates_the_variables(local, up, port, monkeypatch):
    up("--name", "my-app")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "stale")
    lines = local("env").out
    program = 'eval "$1" && env'
    done = subprocess.run(
        ["sh", "-c", program, "sh", lines], capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = local("env", "--output", "json").json
    assert {name: found.get(name) for name in expected} == expected
    assert expected["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"


def test_any_limiter_can_be_opened_with_the_variables(up, use_env):
    up("--name", "my-app")
    use_env()
    for stack in ("my-app", "another-app"):  # which is made, as a table: there are no stacks
        with SyncRepository.open(stack=stack) as repository:
            limiter = SyncRateLimiter(repository)
            limiter.set_system_defaults([TOKENS])
            charge(limiter)


@pytest.mark.parametrize("name", ["my-app", "another-app"])
def test_tables_have_no_stream_that_would_slow_them_down(up, use_env, name):
    up("--name", "my-app")
    use_env()
    SyncRepository.open(stack=name).close()
    client = DynamoClient(name)  # goes by the variables, too
    table = client.call("DescribeTable", {}, deadline=Deadline(10))["Table"]
    client.close()
    assert not table.get("StreamSpecification", {}).get("StreamEnabled")


def test_ctrl_c_ends_following_and_not_the_server(up):
    up()
    with terminal("local", "logs", "--follow") as window:
        window.read_until("Dynoxide listening on")
        window.press(CTRL_C)
        assert window.wait() == 130
    assert "the server goes on" in window.output
    assert LocalService().status().state == "running"


@pytest.mark.slow
def test_the_first_acquire_succeeds_within_three_seconds_of_up(home, port, up, local):
    command = [*MODULE, "local", "up", "--port", str(port), "--name", "my-app"]
    with Stopwatch() as watch:
        subprocess.run(command, check=True, capture_output=True)
        repository = SyncRepository.open(url=store_url(port, "my-app"))
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([TOKENS])
        charge(limiter)
    repository.close()
    assert watch.within(3), watch


def test_following_ends_with_the_server(local, up):
    up()
    command = [*MODULE, "local", "logs", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline().startswith("Dynoxide listening on")
        local("down")
        assert "Shutting down" in follower.stdout.read()
    assert follower.returncode == 0
