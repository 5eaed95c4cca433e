"""The longest expressions of writes to configuration, registries and usage rows fit as well.

``test_longest_writes`` measures the writes to buckets.
"""

import pytest

from tests.support.aws_rules.rules import violations
from tests.unit.dynamodb.stored import BUCKET_ID, NOW_MS
from zae_limiter import Limit, OnUnavailable
from zae_limiter._async.engines.items.entities import MAX_ITEMS
from zae_limiter.admission.configuration import MAX_CHANGES, ConfigBatch
from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb.expressions import action as action_of
from zae_limiter.items.stored import config_writes, configs, entity_items, keys
from zae_limiter.items.stored.attributes import n
from zae_limiter.items.stored.batches import BatchPlan
from zae_limiter.items.stored.entity_items import EntityItems
from zae_limiter.items.stored.usage import day_row
from zae_limiter.models.config import ConfigLevel, LevelChange, LevelConfig
from zae_limiter.models.limit import MAX_LIMITS

NAMESPACE = BUCKET_ID.namespace_id


def limits(prefix):
    return tuple(Limit.per_minute(f"{prefix}{number}", 10) for number in range(MAX_LIMITS))


def counted(resources, count):
    """Return the registry of resources, in which each is counted this often."""
    registry = keys.entity_config_resources(NAMESPACE)
    return {**registry.attributes, **{f"r_{name}": n(count) for name in resources}}


def system_updates():
    before = config_writes.encode(
        NAMESPACE, ConfigLevel("", "r"), LevelConfig(limits("old"), OnUnavailable.BLOCK), "first"
    )
    for after in (
        LevelConfig(limits("new"), OnUnavailable.ALLOW),
        LevelConfig(limits("new")),
        None,
    ):
        yield config_writes.system_update(NAMESPACE, before, after, "second")


def entity_deletions():
    resources = [f"model-{number}" for number in range(MAX_ITEMS)]
    items = EntityItems(
        None,
        tuple(
            config_writes.encode(
                NAMESPACE, ConfigLevel("user", name), LevelConfig(limits("x")), "revision"
            )
            for name in resources
        ),
    )
    for count in (1, 2):
        yield from entity_items.deletions(NAMESPACE, items, counted(resources, count), 90)


def batches():
    """As many changes as one batch may have, which all change a registry."""
    resources = [f"model-{number}" for number in range(MAX_CHANGES)]
    levels = [ConfigLevel("user", name) for name in resources]
    stored = {
        configs.key(NAMESPACE, level): config_writes.encode(
            NAMESPACE, level, LevelConfig(limits("x")), "revision"
        )
        for level in levels
    }
    for after, items in ((limits("x"), {}), ((), stored)):
        for count in (1, 2):
            batch = ConfigBatch.of([LevelChange(level, after) for level in levels], NOW_MS, None)
            registry = counted(resources, count)
            read = {**items, keys.entity_config_resources(NAMESPACE): registry}
            yield from BatchPlan(NAMESPACE, batch, 90).actions(read).actions


def usage_rows():
    """All hours of a day of one bucket item, in one row."""
    used, through = ({f"limit{each}": amount for each in range(44)} for amount in (7, 3))
    hours = [HourUsage(hour, used, 1, through) for hour in range(24)]
    shard_id = BUCKET_ID.shard(31)
    yield day_row.store(shard_id, "31.origin", hours, 99)
    yield day_row.announce(shard_id, 0, "31.origin", 99)


@pytest.mark.parametrize(
    "kind", [system_updates, entity_deletions, batches, usage_rows], ids=lambda kind: kind.__name__
)
def test_the_longest_expressions_fit(kind):
    written = list(kind())
    assert written
    for write in written:
        action = action_of(write, "table")
        assert violations("TransactWriteItems", {"TransactItems": [action]}) == []
