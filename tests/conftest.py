import gc
import os
import sys
import uuid
from collections import defaultdict
from math import prod
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

from tests.support.aws_rules import watch

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
    """Take 11,000 collected tests and their libraries out of every later garbage collection."""
    gc.freeze()
    gc.enable()


# Tests whose workers start a control plane or import SDKs, which takes seconds.
AS_A_BLOCK = (
    "tests/ops/stack/",
    "tests/integration/llm/",
    "tests/integration/examples/",
    "tests/integration/web/",
)

# Tests with several parameters, each of which needs a store: in the fast form of a test each value
# runs once, and not each combination of values.
SAMPLED = ("tests/integration/dynamodb/", "tests/integration/web/", "tests/ops/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let one worker have the tests that share something dear: the first gets the first block.

    A module that says ``SLOW_IN_SYNC_TREE`` runs in the generated tree with the slow tests only.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(AS_A_BLOCK))
    for item in items:
        if getattr(item.module, "SLOW_IN_SYNC_TREE", False) and _is_of_sync_tree(item):
            item.add_marker(pytest.mark.slow)
    by_function = defaultdict(list)
    for item in items:
        if item.nodeid.startswith(SAMPLED) and not item.get_closest_marker("slow"):
            by_function[item.nodeid.partition("[")[0]].append(item)
    for combined in by_function.values():
        for item in _left_out_of_sample(combined):
            item.add_marker(pytest.mark.slow)


def _left_out_of_sample(items):
    """Return the tests of one function that repeat values of its parameters.

    The sample has the n-th value of the parameter with the most values together with the n-th
    value of every other one, counted around.
    """
    numbers = defaultdict(dict)  # of the values of each parameter, by their identity
    columns = defaultdict(list)
    for item in items:
        for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
            columns[name].append(numbers[name].setdefault(id(value), len(numbers[name])))
    # Parameters that change together are one.
    independent = {tuple(column): name for name, column in columns.items()}.values()
    several = [name for name in independent if len(numbers[name]) > 1]
    if len(several) < 2 or prod(len(numbers[name]) for name in several) != len(items):
        return []  # values that belong together, and no product
    longest = max(several, key=lambda name: len(numbers[name]))

    def is_sampled(item):
        at = {name: numbers[name][id(item.callspec.params[name])] for name in several}
        return all(at[name] == at[longest] % len(numbers[name]) for name in several)

    return [item for item in items if not is_sampled(item)]


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
