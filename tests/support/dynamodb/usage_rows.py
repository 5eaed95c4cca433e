"""Items of usage rows, as tests put them into a table."""

import re

from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.stored import bucket, keys
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage import day_row

TEST_ORIGIN = "test"
_SET = re.compile(r"(#\w+)=(?:if_not_exists\(#\w+,)?(:\w+)")


def bucket_with_hours(bucket_id, origin, hour, used, *, shard=0, shards=1, finished=None):
    """Return a bucket item that counts ``used`` tokens of ``rpm`` in an hour, 100 before it.

    ``finished`` is an earlier hour and its tokens, not stored yet.
    """
    shard_id = bucket_id.shard(shard)
    item = {
        **keys.bucket(*shard_id).attributes,
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


def stored_rows(namespace_id, rows, retention_days=30_000):
    """Return the items of ``BucketHour``s that one origin of each bucket has stored and closed."""
    days = {}
    for entity_id, resource, usage in rows:
        place = (BucketId(namespace_id, entity_id, resource).shard(0), day_row.day_of(usage.hour))
        days.setdefault(place, []).append(usage)
    return [
        updated(day_row.store(shard_id, TEST_ORIGIN, hours, retention_days, closes=True))
        for (shard_id, _), hours in days.items()
    ]


def updated(update):
    """Return the item that an update of set attributes makes of nothing."""
    action = body_of(update)
    names, values = action["ExpressionAttributeNames"], action["ExpressionAttributeValues"]
    item = dict(action["Key"])
    for name, value in _SET.findall(action["UpdateExpression"]):
        item[names[name]] = values[value]
    return item
