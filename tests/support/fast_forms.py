"""Which parameters the fast form of a test has, as the test itself says; slow tests run the others.

``@pytest.mark.fast("throttle", "close")`` names them by their ids. ``@pytest.mark.each_value_once``
is for several parameters, each of which needs a store: each value runs once, and not each
combination of values.
"""

from collections import defaultdict
from math import prod

import pytest


def left_to_slow_tests(items):
    """Return the tests that repeat others of the same function, with other values."""
    left = []
    for group in _by_function(items):
        fast = _fast_of(group)
        left += [item for item in group if item not in fast]
    return left


def _by_function(items):
    """Return the tests of each function that says which of them are fast."""
    by_function = defaultdict(list)
    for item in items:
        if item.get_closest_marker("fast") or item.get_closest_marker("each_value_once"):
            by_function[item.nodeid.partition("[")[0]].append(item)
    return by_function.values()


def _fast_of(group):
    if marker := group[0].get_closest_marker("fast"):
        return _named(group, set(marker.args))
    return _each_value_once(group)


def _named(group, names):
    there = {item.callspec.id for item in group}
    is_whole = not any("[" in name for name in group[0].config.args)
    if is_whole and not names <= there:
        raise pytest.UsageError(f"{group[0].nodeid}: none of {sorted(there)} is {names - there}")
    return [item for item in group if item.callspec.id in names]


def _each_value_once(group):
    """Return the tests of one function that have the n-th value of every parameter, counted around.

    The parameter with the most values has each of them once.
    """
    columns = _columns(group)
    counts = {name: len(set(column)) for name, column in columns.items()}
    if prod(counts.values()) != len(group):  # some sets of values were selected, or left out
        return group
    longest = max(columns, key=lambda name: counts[name])
    return [
        item
        for at, item in enumerate(group)
        if all(
            column[at] == columns[longest][at] % counts[name] for name, column in columns.items()
        )
    ]


def _columns(group):
    """Return the number of the value that each test has, by parameter.

    A parameter with a single value is left out, and so is one that follows from another one.
    """
    numbers = defaultdict(dict)  # of the values of each parameter, by their identity
    columns = defaultdict(list)
    for item in group:
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
