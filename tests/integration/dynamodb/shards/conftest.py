import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.dynamodb.shards.accounts import Accounts
from tests.integration.dynamodb.shards.hand import Hand
from zae_limiter.testing.dynamodb.tables import temporary_table

ROOT = Path(__file__).parents[4]


@pytest.fixture
def stack(endpoint):
    """A table of the test's own: everything in it is one bucket."""
    with temporary_table(endpoint) as name:
        yield name


@pytest.fixture
def hands(endpoint, stack):
    """Clients of the bucket that know nothing of each other."""
    made = []

    def make(**options):
        hand = Hand(stack, endpoint, **options)
        made.append(hand)
        return hand

    yield make
    for hand in made:
        hand.close()


@pytest.fixture
def accounts(hands):
    return Accounts(hands().client)


class Child:
    """A process, and what it has told."""

    def __init__(self, path, *arguments):
        self._path = path
        with path.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.dynamodb.shards.busy_child", *arguments],
                cwd=ROOT,
                stdout=output,
            )

    def kill(self):
        """Without a chance to finish anything."""
        self._process.kill()
        self._process.wait()

    def finished(self):
        return self._process.wait(90) == 0

    def told(self):
        """Whole lines only: the last one may have been cut."""
        return [json.loads(line) for line in self._path.read_text().split("\n")[:-1]]


@pytest.fixture
def start(endpoint, stack, tmp_path):
    """Start clients as processes that do not outlive the test."""
    children = []

    def begin(seed, doings, times=""):
        path = tmp_path / f"{len(children)}.jsonl"
        child = Child(path, stack, endpoint, str(seed), doings, str(times))
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
