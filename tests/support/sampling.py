"""The parameters that the fast form of a test runs with; the slow tests run the others."""

from collections import defaultdict
from math import prod
from zlib import crc32

# Tests with several parameters, each of which needs a store: in the fast form of a test each value
# runs once, and not each combination of values.
SAMPLED = (
    "tests/integration/dynamodb/",
    "tests/integration/examples/",
    "tests/integration/web/",
    "tests/ops/",
    "tests/unit/dynamodb/test_longest_writes.py",
)

# Tests that repeat one scenario for kinds of faults, moments or shapes: the fast form runs one of
# three values, or of two if they are few, and other values for other tests.
THINNED = tuple(
    f"tests/integration/dynamodb/{topic}/"
    for topic in ("exactness", "failures", "grouping", "hours", "ports", "processes", "sharding")
)
FEW = 6

# Commands see an engine through the same methods: a test that runs on both, and has no other
# parameter, runs on one of them, and others run on the other one.
ON_ONE_ENGINE = ("tests/ops/cli/",)


def repetitions(items):
    """Return the tests that repeat others, with other values of their parameters."""
    left_out = []
    for combined in _by_function(items):
        repeated = _left_out_of_sample(combined)
        left = [item for item in combined if item not in repeated]
        left_out += [*repeated, *_left_out_by_thinning(left), *_left_out_of_engines(left)]
    return left_out


def _by_function(items):
    """Return the fast tests of each function with parameters that may be left out."""
    by_function = defaultdict(list)
    for item in items:
        may_be_left_out = item.nodeid.startswith(SAMPLED + THINNED) and hasattr(item, "callspec")
        if may_be_left_out and not item.get_closest_marker("slow"):
            by_function[item.nodeid.partition("[")[0]].append(item)
    return by_function.values()


def _left_out_of_sample(items):
    """Return the tests of one function that repeat values of its parameters.

    The sample has the n-th value of the parameter with the most values together with the n-th
    value of every other one, counted around.
    """
    if not items[0].nodeid.startswith(SAMPLED):
        return []
    columns = _columns(items)
    counts = {name: len(set(column)) for name, column in columns.items()}
    if len(columns) < 2 or prod(counts.values()) != len(items):
        return []  # values that belong together, and no product
    longest = max(columns, key=lambda name: counts[name])
    wanted = {name: [at % counts[name] for at in columns[longest]] for name in columns}
    return [
        item
        for at, item in enumerate(items)
        if any(columns[name][at] != wanted[name][at] for name in columns)
    ]


def _left_out_by_thinning(items):
    """Return the tests of one function that are left to the slow tests."""
    if not items[0].nodeid.startswith(THINNED) or len(items) <= FEW // 2:
        return []
    step = 2 if len(items) < FEW else 3
    first = crc32(items[0].originalname.encode()) % step
    return [item for at, item in enumerate(items) if at % step != first]


def _left_out_of_engines(items):
    """Return the test of one function that repeats the other one on another engine."""
    if len(items) != 2 or not items[0].nodeid.startswith(ON_ONE_ENGINE):
        return []
    if any(set(item.callspec.params) != {"engine"} for item in items):
        return []
    return [items[crc32(items[0].originalname.encode()) % 2]]


def _columns(items):
    """Return the number of the value that each test has, by parameter.

    A parameter with a single value is left out, and so is one that follows from another one.
    """
    numbers = defaultdict(dict)  # of the values of each parameter, by their identity
    columns = defaultdict(list)
    for item in items:
        for name, value in item.callspec.params.items():
            columns[name].append(numbers[name].setdefault(id(value), len(numbers[name])))
    kept = {}
    for name, column in sorted(columns.items(), key=lambda each: -len(set(each[1]))):
        if len(set(column)) > 1 and not any(_follows(column, other) for other in kept.values()):
            kept[name] = column
    return kept


def _follows(column, other):
    """Return whether one value of the other parameter always comes with one of this."""
    return len(set(zip(column, other, strict=True))) == len(set(other))
