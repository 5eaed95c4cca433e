"""A program with Locust users on one store; prints what became of them.

Run as ``python users.py URL LEDGER_FOLDER``: importing Locust patches the whole process.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

os.environ["ZAEL_LOADTEST_LEDGER"] = sys.argv[2]
os.environ["BOTO3_MAX_POOL"] = "3"

import gevent
from locust import constant, task
from locust.env import Environment

from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.nodes import make_environment
from zae_limiter_lab.locust import (
    RateLimiterUser,
    StoreFailed,
    close_limiters,
    open_limiters,
)

LIMITS = [Limit.custom("rpm", 5, 1, 3600)]
quiet, caught, shared = Counter(), Counter(), set()


class Quiet(RateLimiterUser):
    """Does not catch rejections: they end its task, and nothing else."""

    wait_time = constant(0.01)

    @task
    def acquire(self):
        quiet["begun"] += 1
        shared.add(id(self.client.limiter))
        with self.client.acquire("quiet", "api", {"rpm": 1}, name="named") as lease:
            quiet["entered"] += 1
            lease.adjust(rpm=0)


class Catching(RateLimiterUser):
    wait_time = constant(0.01)

    @task
    def acquire(self):
        try:
            with self.client.acquire("catching", "api", {"rpm": 1}):
                caught["entered"] += 1
        except RateLimitExceeded as rejection:
            caught[f"{rejection.violations[0].limit_name}"] += 1
        self.client.available("catching", "api")


class Broken(RateLimiterUser):
    """Its store is none that answers."""

    url = "dynamodb://none?endpoint_url=http://127.0.0.1:9&region=us-east-1"


def figures(environment):
    return {
        f"{entry.method} {entry.name}": [entry.num_requests, entry.num_failures]
        for entry in environment.stats.entries.values()
    }


class Anywhere(RateLimiterUser):
    """Names no store."""


def mistakes():
    """What is wrong with each of these locustfiles."""
    folder = Path(sys.argv[2]).parent
    found = {}
    for name, text in {
        "none.py": "x = 1",
        "syntax.py": "def (",
        "import.py": "import nothing_like_it",
        "class.py": "from locust import User\nclass Any(User): pass",
    }.items():
        (folder / name).write_text(text)
        try:
            make_environment(LoadPlan(name, ("Other",), str(folder)))
        except LoadTestError as error:
            found[name] = str(error)
    return found


def documented():
    """The user classes of the page's example."""
    folder, page = (
        Path(sys.argv[2]).parent,
        Path(__file__).parents[3] / "docs/operations/load-testing.md",
    )
    (example,) = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "documented.py").write_text(example)
    environment = make_environment(LoadPlan("documented.py", folder=str(folder)))
    return [each.__name__ for each in environment.user_classes]


def hosts():
    """Which store each form of a host opens."""
    found = {}
    for host in (sys.argv[1], "memory://a", "http://x", "a_b", None):
        environment = Environment(user_classes=[Anywhere], host=host)
        try:
            found[str(host)] = Anywhere.open_client(environment).limiter.repository.stack_name
        except Exception as error:  # noqa: BLE001 - shown to the test
            found[str(host)] = str(error)
    return found


def set_up_again(client):
    """Create what exists, as the scenarios do in the second test on a store."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "locust" / "locustfiles"))
    from common import create

    create(client, "quiet")


def main():
    environment = Environment(user_classes=[Quiet, Catching], host=sys.argv[1], stop_timeout=5)
    client = Quiet.open_client(environment)
    runner = environment.create_local_runner()
    runner.start(20, spawn_rate=100)
    while not runner.user_count:  # statistics begin with the first user
        gevent.sleep(0.001)
    client.set_resource_defaults("api", LIMITS)
    client.create_entity("quiet", name="create")
    set_up_again(client)
    gevent.sleep(1.0)
    runner.quit()
    said = {
        "quiet": quiet,
        "caught": caught,
        "limiters": len(open_limiters()),
        "shared": len(shared),
        "requests": figures(environment),
        "exceptions": [each["msg"] for each in runner.exceptions.values()],
        "errors": [str(each.error) for each in environment.stats.errors.values()],
        "pool": client._pool.counter,  # noqa: SLF001
        "unavailable": issubclass(StoreFailed, RateLimiterUnavailable),
    }
    close_limiters()
    os.environ["ZAEL_URL"] = "memory://from-environment"
    said["hosts"] = hosts()
    said["mistakes"] = mistakes()
    said["documented"] = documented()
    close_limiters()
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
