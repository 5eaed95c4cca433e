"""Two processes whose wall clocks are 1 s apart share a bucket of the real server."""

import logging
import subprocess
import sys
import time

import pytest

from tests.integration.dynamodb.processes.conftest import PROGRAMS, ROOT
from tests.support.dynamodb.tables import store_url

pytestmark = pytest.mark.real_time

logger = logging.getLogger(__name__)

SECOND_NS = 1_000_000_000
RATE = CAPACITY = 100
APART_S = 0.15
TURNS = 3


@pytest.fixture
def hosts(stack, endpoint, unique_name):
    """Start a process whose wall clock is off by each of these; they end with the test."""
    children = []

    def start(*offs_s, seconds):
        url = store_url(stack, endpoint)
        for off_s in offs_s:
            arguments = [unique_name, url, str(off_s), str(seconds)]
            children.append(
                subprocess.Popen(
                    [sys.executable, "-m", f"{PROGRAMS}.shifted", *arguments],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        return children

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_hosts_that_are_a_second_apart_admit_what_one_host_would(hosts):
    """Capacity + rate × (t + 0.15 s), after 35 s with 20 calls a second."""
    children = hosts(-0.5, 0.5, seconds=35)
    offsets_ns = [int(child.stdout.readline()) for child in children]
    apart_s = (max(offsets_ns) - min(offsets_ns)) / SECOND_NS
    surplus = []
    for _ in range(TURNS):
        turns = [take_turn(child) for child in children]  # the one behind first
        admitted = sum(turn[0] for turn in turns)
        lasted_s = (max(turn[2] for turn in turns) - min(turn[1] for turn in turns)) / SECOND_NS
        surplus.append(admitted - CAPACITY - RATE * lasted_s)
        time.sleep(CAPACITY / RATE + APART_S)  # until the bucket is full again
    logger.info(
        "clocks are %.2f ms apart; admitted beyond C + rate × t: %s", apart_s * 1000, surplus
    )
    assert apart_s <= APART_S
    assert max(surplus) <= RATE * APART_S


def take_turn(child):
    """What the process was admitted, when it began, and when it ended."""
    child.stdin.write("go\n")
    child.stdin.flush()
    return tuple(map(int, child.stdout.readline().split()))
