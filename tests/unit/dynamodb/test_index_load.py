"""Index entries per key and second, with the keys that clients write, at the promised load."""

import random
from collections import Counter

import pytest

from zae_limiter import schema
from zae_limiter.items.stored import bucket, keys
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage import day_row

NS, RESOURCE, DAY = "TZpe9J1Nb1c", "gpt-4", 20_454
ACTIVE = 1_000_000
SPAN_S = 10
TURNED_PER_S, NEW_PER_S = 12_000, 6_000
MAX_ENTRIES_PER_S = 1_000  # of one index key: what DynamoDB takes


def in_sequence(number):
    return f"user-{number}"


def mail(number):
    return f"{number:06d}@example.com"


def scrambled(number):
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def day_entries(entity_id):
    """The row of an announced day."""
    return [day_row.index_keys(BucketId(NS, entity_id, RESOURCE), DAY)]


def bucket_entries(entity_id):
    """A new bucket, and the day that it announces."""
    return [bucket.index_keys(NS, entity_id, RESOURCE), *day_entries(entity_id)]


def registered_entries(entity_id):
    """The same of an entity that is registered at that moment, with its audit event."""
    own = [
        keys.entity(NS, entity_id),
        keys.audit_event(NS, entity_id, "019b76daa800-03062a-2328f0"),
    ]
    return [*bucket_entries(entity_id), *(keys.namespace_index(NS, key, entity_id) for key in own)]


def busiest(entity_ids, entries_of):
    """Return the entries per second of the busiest key of GSI2 and GSI4, on average."""
    of_resource, of_all = Counter(), Counter()
    for entity_id in entity_ids:
        of_resource[schema.gsi2_pk_resource(NS, RESOURCE, entity_id)] += 1
        of_all[schema.gsi4_pk_namespace(NS, entity_id)] += 1
    made = Counter(name for entry in entries_of("user-1") for name in entry)
    of_one_key = max(of_resource.values()) * made["GSI2PK"], max(of_all.values()) * made["GSI4PK"]
    return max(of_one_key) / SPAN_S


@pytest.mark.parametrize(
    "name",
    [in_sequence, *(pytest.param(name, marks=pytest.mark.slow) for name in (mail, scrambled))],
)
@pytest.mark.parametrize(
    ("per_s", "entries_of"),
    [
        (TURNED_PER_S, day_entries),
        (NEW_PER_S, bucket_entries),
        (NEW_PER_S, registered_entries),
    ],
)
def test_no_index_key_gets_more_than_it_takes(name, per_s, entries_of):
    """Whichever entities are active in the span: all alike, or numbers in a row."""
    count, chance = per_s * SPAN_S, random.Random(20260101)
    first = chance.randrange(ACTIVE - count)
    scattered = chance.sample(range(ACTIVE), count)
    for numbers in (range(first, first + count), scattered):
        load = busiest(map(name, numbers), entries_of)
        assert per_s / schema.PARTITIONS < load <= MAX_ENTRIES_PER_S


@pytest.mark.parametrize("entries_of", [day_entries, bucket_entries, registered_entries])
def test_all_items_of_an_entity_have_the_keys_that_were_counted(entries_of):
    entries = list(entries_of("user-1"))
    assert entries
    for entry in entries:
        assert entry["GSI4PK"]["S"] == schema.gsi4_pk_namespace(NS, "user-1")
        if "GSI2PK" in entry:
            assert entry["GSI2PK"]["S"] == schema.gsi2_pk_resource(NS, RESOURCE, "user-1")


def test_entries_of_a_million_entities_are_spread_evenly():
    per_key = Counter(schema.partition_of(in_sequence(number)) for number in range(ACTIVE))
    assert set(per_key) == set(range(schema.PARTITIONS))
    assert max(per_key.values()) < 1.05 * ACTIVE / schema.PARTITIONS
