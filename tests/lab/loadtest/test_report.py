import json

import pytest

from zae_limiter_lab.loadtest import LoadPlan
from zae_limiter_lab.loadtest.report import LoadReport, RequestFigures, WorkerFigures


def row(kind, requests, total_ms=0.0, failures=0, name="gpt"):
    return RequestFigures(kind, name, requests, failures, 1.0, 2.0, 3.0, 4.0, 5.0, total_ms)


def report(*rows, cpu=0.2, cpu_wait=0.0, machine=0.3, users=10, seconds=10.0, **more):
    workers = (WorkerFigures(cpu, cpu_wait, writes=900, calls=1000),)
    return LoadReport(seconds, users, rows, workers, machine_share=machine, **more)


BUSY_USERS = 10 * 10.0 * 1000  # ms: all users wait for calls all the time


@pytest.mark.parametrize(
    ("figures", "bound"),
    [
        (report(), "nothing"),
        (report(row("ACQUIRE", 10), row("RATE_LIMITED", 90)), "limits"),
        (report(row("ACQUIRE", 100, BUSY_USERS), cpu=0.97), "client CPU"),
        (report(row("ACQUIRE", 100, BUSY_USERS / 10)), "users"),
        (report(row("ACQUIRE", 100, BUSY_USERS), machine=0.99), "machine CPU"),
        (report(row("ACQUIRE", 100, BUSY_USERS)), "server"),
        # Others keep the machine busy: users with pauses do not notice, a starved worker does.
        (report(row("ACQUIRE", 100, BUSY_USERS / 10), machine=0.99), "users"),
        (report(row("ACQUIRE", 100, 500.0), users=5, cpu=0.05, machine=1.0), "users"),
        (report(row("ACQUIRE", 100, BUSY_USERS / 10), cpu=0.4, cpu_wait=0.5), "machine CPU"),
    ],
)
def test_it_names_what_bounds_the_throughput(figures, bound):
    assert figures.bound[0] == bound


def test_rejections_are_no_failures():
    figures = report(row("ACQUIRE", 60, failures=1), row("COMMIT", 59), row("RATE_LIMITED", 5))
    assert (figures.admitted, figures.limited, figures.failures) == (59, 5, 1)
    assert figures.as_dict()["acquires_per_second"] == 6.4
    assert figures.as_dict()["writes_per_second"] == 90.0


def test_the_json_is_strict():
    figures = report(row("ACQUIRE", 3, 1.5), errors=("one",))
    data = json.loads(json.dumps(figures.as_dict(), allow_nan=False))
    assert (data["admitted"], data["errors"]) == (3, ["one"])
    assert RequestFigures(**data["requests"][0]) == figures.rows[0]


def test_a_plan_survives_its_json():
    plan = LoadPlan("a.py", ("A", "B"), users=3, host="memory://", mode="tune")
    assert LoadPlan.of_json(plan.as_json()) == plan
    assert LoadPlan.of_dict({"file": "a.py", "of_a_newer_version": 1}) == LoadPlan("a.py")


@pytest.mark.parametrize(("users", "workers", "rate"), [(1, 1, 1), (50, 1, 50), (900, 4, 400)])
def test_users_start_in_the_first_second_if_locust_can(users, workers, rate):
    assert LoadPlan("a.py", users=users, workers=workers).spawn_rate == rate
