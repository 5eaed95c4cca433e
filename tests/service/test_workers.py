"""Several workers and several hosts: leases, keys, metrics, stops and crashes."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.running import Client, running
from zae_limiter import Limit
from zae_limiter_service.lease_ids import parse_lease_id
from zae_limiter_service.worker import WorkerPlace

WORKERS = 3


@pytest.fixture
def workers(limiter, url, tmp_path):
    log = tmp_path / "access.log"
    options = ("--url", url, "--no-auth", "--drain", "1", "--access-log", str(log))
    with running(*options, "--workers", str(WORKERS)) as service:
        wait_until(lambda: metric(service, "workers") == WORKERS)
        service.log = log
        yield service


def metric(service, name, **labels):
    client = service.client()
    try:
        return client.metric(name, **labels)
    finally:
        client.close()


def fresh(service, call):
    """Call over a connection of its own, which any worker may accept."""
    client = Client(service.port)
    try:
        return call(client)
    finally:
        client.close()


def leases_of_several_workers(service, pool):
    """Open leases until more than one worker has accepted a connection."""
    leases = []

    def are_of_several():
        batch = pool.map(
            lambda _: fresh(service, lambda client: client.lease({"tpd": 10})), range(20)
        )
        leases.extend(batch)
        return len({parse_lease_id(lease).worker for lease in leases}) > 1

    wait_until(are_of_several)
    return leases


def test_any_worker_ends_the_lease_of_any_other(workers, limiter):
    with ThreadPoolExecutor(8) as pool:
        leases = leases_of_several_workers(workers, pool)
        half = len(leases) // 2
        assert metric(workers, "leases_open") == len(leases)
        settled = pool.map(
            lambda lease: fresh(workers, lambda client: client.settle(lease, {"tpd": 1})),
            leases[:half] * 2,
        )
        deleted = pool.map(
            lambda lease: fresh(workers, lambda client: client.delete(f"/v1/leases/{lease}")),
            leases[half:] * 2,
        )
        assert {answer.status for answer in settled} == {200}
        assert {answer.status for answer in deleted} == {204}
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000 - half
    assert metric(workers, "leases_open") == 0
    assert metric(workers, "leases_ended_total", how="settled") == half


def test_a_key_is_known_to_every_worker(workers, limiter):
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: fresh(
                    workers,
                    lambda client: client.acquire({"tpd": 100}, Idempotency_Key="same"),
                ),
                range(24),
            )
        )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9_900


def test_a_worker_that_dies_is_started_again(workers):
    lease = fresh(workers, lambda client: client.lease({"tpd": 100}))
    owner = parse_lease_id(lease).worker
    victims = worker_processes(workers)
    os.kill(victims[owner], signal.SIGKILL)
    gone = fresh(workers, lambda client: client.settle(lease, {"tpd": 1}))
    assert gone.status in (404, 503)
    wait_until(lambda: metric(workers, "workers") == WORKERS)
    assert fresh(workers, lambda client: client.settle(lease, {"tpd": 1})).status == 404
    assert worker_processes(workers)[owner] != victims[owner]


def test_each_request_is_a_line_of_json_without_ids(workers):
    lease = fresh(workers, lambda client: client.lease({"tpd": 1}, entity="secret-entity"))
    fresh(workers, lambda client: client.settle(lease, {}))
    expected = {("POST", "/v1/leases", 201), ("POST", "/v1/leases/{id}/settle", 200)}

    def routes():
        lines = map(json.loads, workers.log.read_text(encoding="utf-8").splitlines())
        return {(line["method"], line["route"], line["status"]) for line in lines}

    wait_until(lambda: expected <= routes())  # a line is written after its answer
    text = workers.log.read_text(encoding="utf-8")
    assert lease not in text
    assert "secret-entity" not in text


def test_a_stop_ends_all_workers_and_returns_holds(limiter, url):
    limiter.set_resource_defaults("gpt-4", [Limit.quota("calls", 100, per="month")])
    with running("--url", url, "--no-auth", "--drain", "0.2", "--workers", str(WORKERS)) as service:
        wait_until(lambda: metric(service, "workers") == WORKERS)
        for _ in range(12):
            fresh(service, lambda client: client.lease({"calls": 2}))
        processes = worker_processes(service)
        assert service.stop() == 0
    assert limiter.available("user-1", "gpt-4")["calls"] == 100
    assert not [pid for pid in processes if is_alive(pid)]


def test_workers_stop_when_their_parent_is_killed(limiter, url):
    limiter.set_resource_defaults("gpt-4", [Limit.quota("calls", 100, per="month")])
    with running("--url", url, "--no-auth", "--drain", "0.1", "--workers", "2") as service:
        wait_until(lambda: metric(service, "workers") == 2)
        fresh(service, lambda client: client.lease({"calls": 2}))
        processes = worker_processes(service)
        service.kill()
        wait_until(lambda: not [pid for pid in processes if is_alive(pid)])
    assert limiter.available("user-1", "gpt-4")["calls"] == 100


def test_another_host_names_the_owner(serve):
    owner = serve(advertise="http://10.0.0.5:8080", place=WorkerPlace("http://10.0.0.5:8080"))
    other = serve(place=WorkerPlace("http://10.0.0.6:8080"))
    lease = owner.client().lease({"tpd": 1})
    for answer in (
        other.client().settle(lease, {"tpd": 1}),
        other.client().delete(f"/v1/leases/{lease}"),
        other.client().post(f"/v1/leases/{lease}/renew"),
    ):
        assert (answer.status, answer.json["owner"]) == (421, "http://10.0.0.5:8080")
    assert owner.client().settle(lease, {"tpd": 1}).status == 200


def worker_processes(service):
    """Return the process ids of the workers, the oldest of each number first to last."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(service.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = [int(line.split()[0]) for line in listed.splitlines() if "worker" in line]
    return sorted(found)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(holds):
    give_up_at = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up_at, "it does not happen"
        time.sleep(0.1)
