"""The memory store with many rows: small dictionaries that the garbage collector leaves alone."""

import gc

from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.embedded.memory.buckets import MAX_RECENT
from zae_limiter.embedded.memory.expiries import FAR_BITS, INTERVAL_BITS
from zae_limiter.embedded.memory.partitioned import ONE_PART, PARTS, Partitioned
from zae_limiter.embedded.memory.tables import MemoryTables

NS, API = "ns", "api"
NOW_MS = 1_800_000_000_000
RATE = Rate(1000, 1000, 1000)


def bucket(expires_ms):
    return BucketImage({"rpm": LimitState(0, RATE)}, 1, expires_ms, NOW_MS // 3_600_000)


def expired(tables, now_ms, limit=10**6):
    rows = tables.expired_buckets(now_ms, limit)
    for row in rows:
        tables.delete_bucket(row.namespace_id, row.entity_id, row.resource)
    tables.journal.entries.clear()
    return {row.entity_id for row in rows}


def test_a_table_behaves_as_one_dictionary_before_and_after_it_is_split():
    table, expected = Partitioned(), {}
    for number in range(ONE_PART + 2000):
        table[f"id-{number}"] = expected[f"id-{number}"] = number
    for number in range(0, ONE_PART, 3):
        del table[f"id-{number}"]
        del expected[f"id-{number}"]
    assert len(table.parts()) == PARTS
    assert {key: table[key] for key in table} == expected
    assert len(table) == len(expected)
    assert "id-0" not in table
    assert table.get("id-0", "absent") == table.pop("id-0", "absent") == "absent"
    assert table.pop("id-1") == 1
    assert max(map(len, table.parts())) < 4 * len(table) / PARTS  # the hash spreads them


def test_an_empty_table_is_false_also_after_it_was_split():
    table = Partitioned()
    assert not table
    ids = [f"id-{number}" for number in range(ONE_PART + 1)]
    for each in ids:
        table[each] = None
    assert table
    for each in ids:
        del table[each]
    assert not table
    assert list(table) == []


def test_the_garbage_collector_does_not_visit_rows_nor_their_expiries():
    tables = MemoryTables()
    for number in range(3 * MAX_RECENT):
        if tables.is_crowded:
            tables.pack()
        tables.put_bucket(NS, f"user-{number}", API, bucket(NOW_MS + number))
        tables.journal.entries.clear()
    gc.collect()
    of_many = [
        each
        for each in gc.get_objects()
        if type(each) in (dict, list, tuple) and len(each) > 2 * MAX_RECENT
    ]
    assert not any("user-0" in each or f"user-{number}" in each for each in of_many)


def test_buckets_expire_to_the_millisecond_while_they_are_few():
    tables = MemoryTables()
    for number in range(5):
        tables.put_bucket(NS, f"user-{number}", API, bucket(NOW_MS + 100 * number))
    tables.journal.entries.clear()
    assert expired(tables, NOW_MS - 1) == set()
    assert expired(tables, NOW_MS + 200) == {"user-0", "user-1", "user-2"}
    assert expired(tables, NOW_MS + 399) == {"user-3"}
    assert expired(tables, NOW_MS + 400) == {"user-4"}


def test_many_buckets_expire_within_seconds_and_in_batches():
    tables = MemoryTables()
    for number in range(5000):
        tables.put_bucket(NS, f"user-{number}", API, bucket(NOW_MS + number % 1000))
    tables.journal.entries.clear()
    later_ms = NOW_MS + 1000 + 2**INTERVAL_BITS
    batches = [expired(tables, later_ms, 300) for _ in range(17)]
    assert all(len(batch) <= 300 for batch in batches)
    assert len(set().union(*batches)) == 5000
    assert expired(tables, later_ms) == set()


def test_an_expiry_that_was_moved_counts_and_the_old_one_does_not():
    tables = MemoryTables()
    day_ms = 86_400_000
    for entity_id, at_ms in [("later", NOW_MS + 1), ("earlier", NOW_MS + 300 * day_ms)]:
        tables.put_bucket(NS, entity_id, API, bucket(at_ms))
    tables.put_bucket(NS, "later", API, bucket(NOW_MS + 9 * day_ms))
    tables.put_bucket(NS, "earlier", API, bucket(NOW_MS + 5))
    tables.journal.entries.clear()
    assert expired(tables, NOW_MS + 10) == {"earlier"}
    for now_ms in range(NOW_MS + 10, NOW_MS + 9 * day_ms, 2**FAR_BITS // 3):
        assert expired(tables, now_ms) == set()
    assert expired(tables, NOW_MS + 9 * day_ms) == {"later"}


def test_a_deletion_that_was_undone_is_made_again():
    tables = MemoryTables()
    tables.put_bucket(NS, "user", API, bucket(NOW_MS))
    tables.journal.entries.clear()
    [row] = tables.expired_buckets(NOW_MS, 10)
    tables.delete_bucket(NS, "user", API)
    tables.journal.undo()
    assert tables.get_bucket(NS, "user", API) == row.image
    assert expired(tables, NOW_MS) == {"user"}
