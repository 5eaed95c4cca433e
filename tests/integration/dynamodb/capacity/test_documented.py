"""The tables of docs/reference/dynamodb-units.md: measured, and within what must hold."""

from pathlib import Path

import pytest

from tests.integration.dynamodb.capacity.documented import Cost, documented

MUST_HOLD = {
    "acquire, warm": Cost(1, 1, 0),
    "acquire, warm, cascading": Cost(2, 2, 0),
    "acquire, first of a process, bucket exists": Cost(2, 1, 3),
    # With the announcement of each bucket's day, and the resource, which is new, too.
    "acquire, first of a process, bucket is new": Cost(5, 9, 3.5),
    "acquire, first of a process, cascading, buckets are new": Cost(8, 16, 5.5),
    "acquire, warm, first of an hour": Cost(1, 1, 0),
    "acquire, warm, first of an hour, the hour before last not stored": Cost(2, 2, 0),
    "acquire, warm, first of a day": Cost(2, 4, 0),
    "acquire, warm, first of a day, the hour before last not stored": Cost(3, 5, 0),
    "acquire, first of a process, cascading, buckets exist": Cost(4, 8, 5),
    "acquire with `adjust`": Cost(2, 2, 0),
    "rejection": Cost(1, 1, 0),
    "`available`, warm": Cost(1, 0, 1),
}


@pytest.mark.parametrize("operation", MUST_HOLD)
def test_no_operation_costs_more_than_it_may(operation):
    figures = zip(documented()[operation], MUST_HOLD[operation], strict=True)
    assert all(figure <= most for figure, most in figures)


@pytest.mark.parametrize("operation", documented())
def test_every_row_is_measured(operation):
    sources = [each.read_text() for each in Path(__file__).parent.glob("test_*.py")]
    measured = [source for source in sources if "cost_of" in source]
    assert any(f'"{operation}"' in source for source in measured)


def test_warm_acquires_read_nothing():
    warm = [operation for operation in documented() if operation.startswith("acquire, warm")]
    assert [each for each in warm if documented()[each].rcu] == [
        "acquire, warm, `speculative_writes=False`",
        "acquire, warm, cascading, `speculative_writes=False`",
    ]
