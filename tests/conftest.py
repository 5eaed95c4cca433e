import fcntl
import gc
import os
import sys
import uuid
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

from tests.support.aws_rules import watch
from tests.support.fast_forms import left_to_slow_tests

# How long properties are searched; the same cases every time where CI or SAME_CASES is set: a gate
# must not fail by chance, and what chance finds is to be looked into first. Here and not beside the
# properties: a bound on time must not be in force for the few that are elsewhere.
settings.register_profile(
    "zael",
    max_examples=int(os.environ.get("ZAEL_PROPERTY_EXAMPLES", "10")),
    deadline=None,  # the machine may be shared; pytest-timeout watches over all tests
    derandomize=bool(os.environ.get("CI") or os.environ.get("SAME_CASES")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("zael")

# Tests start hundreds of processes. Where Python is told to write no bytecode, each would compile
# the package again, which takes half as long as the rest of its start, and each worker all tests.
# Beside the sources, as usual: a folder of its own would leave out what pip has compiled.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False


watch.install()


@pytest.fixture(autouse=True)
def _requests_keep_the_rules_of_dynamodb():
    """No test may send a request that AWS would refuse, whatever a server for tests takes."""
    yield
    watch.store_forms()
    found = watch.take_violations()
    assert not found, "\n".join(found)


@pytest.fixture
def unique_name() -> str:
    """A name that no other test uses."""
    return f"test-{uuid.uuid4().hex}"


def pytest_configure(config):
    """Collect no garbage while tests are collected: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish(session):
    """Take 13,000 collected tests and their libraries out of every later garbage collection.

    What is left is collected seldom: of the libraries that tests import later, nearly all stays.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


# Tests whose workers start a control plane or import SDKs, which takes seconds.
AS_A_BLOCK = (
    "tests/ops/stack/",
    "tests/integration/llm/",
    "tests/integration/examples/",
    "tests/integration/web/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let one worker have the tests that share something dear: the first gets the first block.

    Tests of real time come last, when no worker has another one. A module that says
    ``SLOW_IN_SYNC_TREE`` runs in the generated tree with the slow tests only.
    """
    items.sort(key=lambda item: (_is_of_real_time(item), not item.nodeid.startswith(AS_A_BLOCK)))
    for item in items:
        if getattr(item.module, "SLOW_IN_SYNC_TREE", False) and _is_of_sync_tree(item):
            item.add_marker(pytest.mark.slow)
    for item in left_to_slow_tests(items):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Run a test of real time while no other worker runs a test: they share a lock on this file."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX if _is_of_real_time(item) else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # said, since a process that was forked has it open


def _is_of_real_time(item):
    return item.get_closest_marker("real_time") is not None


def _is_of_sync_tree(item):
    return hasattr(item, "callspec") and "sync" in item.callspec.id.split("-")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Leave out long tests where they would be deselected: every worker collects all others."""
    if collector.config.option.markexpr == "not slow" and _is_slow(obj):
        return []
    return None


def _is_slow(obj):
    marks = getattr(obj, "pytestmark", ()) if isinstance(obj, type | FunctionType) else ()
    return any(mark.name == "slow" for mark in marks)
