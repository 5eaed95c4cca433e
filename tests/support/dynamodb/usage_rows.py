"""Items of usage rows, as tests put them into a table."""

from zae_limiter.dynamodb.items import bucket, keys, usage
from zae_limiter.dynamodb.items.attributes import document, n, s

TEST_ORIGIN = "0.test"


def bucket_with_hours(bucket_id, origin, hour, used, *, shards=1, finished=None):
    """Return a bucket item that counts ``used`` tokens of ``rpm`` in an hour, 100 before it.

    ``finished`` is an earlier hour and its tokens, not stored yet.
    """
    shard_id = bucket_id.shard(int(origin.split(".")[0]))
    item = {
        **bucket.key(*shard_id),
        **bucket.index_keys(*shard_id),
        "o": s(origin),
        "h": n(hour),
        "p_rpm": s("10:10:60:0"),
        "t_rpm": n(0),
        "c_rpm": n(100_000 + used * 1000),
        "b0": n(100_000),
        "ac": n(used),
        "n": n(shards),
        "g": n(shard_id.number + 1),
        "lh": s("digest"),
        "cv": n(0),
        "wc": n(1),
        "op": s("~65f.1"),
    }
    if finished is not None:
        item |= {"ph": n(finished[0]), "u0": n(finished[1] * 1000), "ua": n(finished[1])}
    return item


def stored_row(namespace_id, row, expires_s, origin=TEST_ORIGIN):
    """Return the item of a ``BucketHour`` that one origin has stored."""
    entity_id, resource, window = row
    through = window.through_children
    amounts = {
        name: [amount * 1000, through.get(name, 0) * 1000]
        for name, amount in window.counters.items()
    }
    *counts, asked = window.tally
    amounts[usage.EVENTS] = [window.events, *counts, dict(asked)]
    return {
        **keys.usage(namespace_id, entity_id, resource, usage.window_key(window.hour)).attributes,
        **usage.index_keys(namespace_id, entity_id, resource, window.hour),
        "entity_id": s(entity_id),
        "resource": s(resource),
        "ttl": n(expires_s),
        usage.ORIGIN_PREFIX + origin: document(amounts),
    }
