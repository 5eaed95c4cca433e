"""Processes on one bucket that are killed at random, and what their diaries add up to."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.dynamodb.tables import store_url

ROOT = Path(__file__).parents[4]
PROGRAM = "tests.integration.dynamodb.sharding.busy"


class Child:
    def __init__(self, path, arguments):
        self._path = path
        self._process = subprocess.Popen([sys.executable, "-m", PROGRAM, *arguments], cwd=ROOT)

    @property
    def has_begun(self):
        return self._path.exists() and self._path.stat().st_size > 0

    def kill(self):
        """Without a chance to finish anything."""
        self._process.kill()
        self._process.wait()

    def finished(self, seconds=60):
        return self._process.wait(seconds) == 0

    def told(self):
        """Whole lines only: the last one may have been cut."""
        lines = self._path.read_text().split("\n")[:-1] if self._path.exists() else []
        return [json.loads(line) for line in lines]


class Crowd:
    """``start`` makes a process; all of them end with the block."""

    def __init__(self, world, folder):
        self._world, self._folder = world, folder
        self.children = []

    def start(self, seed, tree, seconds, plan):
        path = self._folder / f"{len(self.children)}.jsonl"
        url = store_url(self._world.table, self._world.endpoint)
        arguments = [tree, url, self._world.namespace, seed, seconds, path, json.dumps(plan)]
        child = Child(path, [str(each) for each in arguments])
        self.children.append(child)
        return child

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for child in self.children:
            child.kill()

    def counts(self):
        return Counter(line[0] for child in self.children for line in child.told())

    def lines(self, word):
        return [line for child in self.children for line in child.told() if line[0] == word]

    def net(self, limit):
        """The least and the most that all of them have taken, in tokens."""
        done, doubts = self.steps()
        sure = sum(net.get(limit, 0) for net in done)
        least = sum(low.get(limit, 0) for low, _ in doubts)
        most = sum(high.get(limit, 0) for _, high in doubts)
        return sure + least, sure + most

    def steps(self):
        """What was taken by each step that is done; the least and the most of the others."""
        done, doubts = [], []
        for child in self.children:
            open_ = {}
            for word, *rest in child.told():
                if word == "try":
                    open_[rest[0]] = rest[1:]
                elif word == "done":
                    del open_[rest[0]]
                    done.append(rest[1])
            doubts += open_.values()
        return done, doubts
