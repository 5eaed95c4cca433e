"""A record of any form is skipped or reported by itself; the batch around it is processed."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.dynamodb.streams import bucket_record, removal_record
from tests.support.generated import examples
from tests.unit.aggregator.test_archive import expired, lines
from tests.unit.aggregator.test_processor import Batch, is_store, turned
from zae_limiter_aggregator.archive import ArchiveObject

# What stands in records, in other places than it belongs.
TEXTS = [
    "", "x", "0", "-1", "1e400", "²", "\ud800", "ns/BUCKET#user-1#api#0", "ns/BUCKET#", "#STATE",
    "ns/BUCKET#user-9#api#0", "#AUDIT#x", "~1.x", "10:1:1:0", "2026-01-31T12", "----------",
    "{", "[[[[", "null", "9" * 5_000,
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(TEXTS) | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["S", "N", "M", "L", "PK", "SK", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
WHOLE = [
    bucket_record(turned(1), 101),
    bucket_record(turned(2), 102, "INSERT"),
    removal_record(expired(3).item, 103),
    removal_record(expired(4).item, 104),
]


@st.composite
def damaged(draw):
    """Return a record with a part that is missing or something else."""
    record = copy.deepcopy(draw(st.sampled_from(WHOLE)))
    parent = record if draw(st.integers(0, 4)) == 0 else record["dynamodb"]
    name = draw(st.sampled_from(sorted(parent)))
    while isinstance(parent[name], dict) and draw(st.booleans()):
        parent = parent[name]
        name = draw(st.sampled_from(sorted(parent)))
    if draw(st.integers(0, 3)):
        parent[name] = draw(VALUES)
    else:
        del parent[name]
    return record


RECORDS = st.one_of(damaged(), damaged(), damaged(), VALUES)


@pytest.mark.parametrize("seconds", [-1.8e305, 1.8e305, 10**400, float("nan"), float("-inf")])
def test_an_impossible_time_of_a_record_stops_nothing(seconds):
    record = bucket_record(turned(9), 109)
    record["dynamodb"]["ApproximateCreationDateTime"] = seconds
    assert Batch().process([record]).failed == []


@examples(400)
@given(before=st.lists(RECORDS, max_size=3), after=st.lists(RECORDS, max_size=3))
def test_damaged_records_stop_nothing(before, after):
    batch = Batch()
    whole = [bucket_record(turned(9), 109), removal_record(expired(8).item, 108)]
    result = batch.process([*before, *whole, *after])
    assert result.failed == []  # to be delivered again would not mend them
    stored = [body["Key"]["PK"]["S"] for body in batch.calls.bodies if is_store(body)]
    assert "ns/ENTITY#user-9" in stored
    archived = [
        line.get("event_id")
        for name, body in batch.calls.objects.items()
        for line in lines(ArchiveObject(name, body, []))
    ]
    assert "01H0008" in archived
