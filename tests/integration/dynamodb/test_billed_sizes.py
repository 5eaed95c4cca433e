"""The storage that DynamoDB bills, and the alarms and metrics of a stack, as the docs say."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from tests.support.dynamodb.waiting import until
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.dynamodb.table import INDEXES
from zae_limiter.testing import FakeClock
from zae_limiter_aggregator.report import METRIC_UNITS
from zae_limiter_ops.infra.template import template

OVERHEAD = 100  # bytes that are billed on top of each item and of each entry in an index
PAGE = Path(__file__).parents[3] / "docs/operations/capacity.md"
ENTITY = "0123456789abcdef0123456789abcdef0123"  # as long as a UUID
LIMITS = [Limit.per_minute("rpm", 600), Limit.per_minute("tpm", 100_000)]


def documented(*names):
    """Return constants of the calculation on the page."""
    numbers = ", ".join(["([0-9_]+)"] * len(names))
    found = re.search(rf"^{', '.join(names)} = {numbers}", PAGE.read_text(), re.MULTILINE)
    return tuple(map(int, found.groups()))


def size(item):
    """Return the size of names and values: text in UTF-8, two digits of a number in a byte."""
    total = 0
    for name, value in item.items():
        ((kind, content),) = value.items()
        sizes = {"N": (len(str(content)) + 1) // 2 + 1, "BOOL": 1}
        total += len(name) + (sizes[kind] if kind in sizes else len(content.encode()))
    return total


def billed(item):
    """Return the billed bytes of an item with its entries in the indexes."""
    total = size(item) + OVERHEAD
    for index in INDEXES:
        keys = [name for name in (index.partition, index.sort) if name is not None]
        if all(name in item for name in keys):
            entry = item if index.projection == "ALL" else {k: item[k] for k in ("PK", "SK", *keys)}
            total += size(entry) + OVERHEAD
    return total


@pytest.fixture(scope="module")
def items():
    """The items of an entity that was used in four hours of a day: two of them are stored."""
    clock = FakeClock()
    with temporary_table() as table:
        builder = SyncRepository.builder().url(store_url(table, shared_endpoint())).clock(clock)
        with builder.register_missing_namespace().build() as repository:
            limiter = SyncRateLimiter(repository)
            for _ in range(4):
                with limiter.acquire(ENTITY, "gpt-4", {"rpm": 1, "tpm": 500}, limits=LIMITS):
                    pass
                clock.advance(seconds=3600)
            client = repository.provisioner()._context.engine.client  # noqa: SLF001 - all items
            rows = []

            def stored():
                rows[:] = client.call("Scan", {})["Items"]
                return any("#USAGE#" in item["SK"]["S"] for item in rows)

            asyncio.run(until(stored))
            yield rows


def test_a_bucket_is_billed_as_documented(items):
    (bucket,) = [item for item in items if "/BUCKET#" in item["PK"]["S"]]
    _, _, most = documented("DAY_BYTES", "HOUR_BYTES", "BUCKET_BYTES")
    assert 0.9 * most < billed(bucket) <= most


def test_a_day_of_usage_is_billed_as_documented(items):
    (row,) = [item for item in items if "#USAGE#" in item["SK"]["S"]]
    hours = [name for name in row if name[:2].isdecimal()]
    assert len(hours) == 2
    of_day, of_hour, _ = documented("DAY_BYTES", "HOUR_BYTES", "BUCKET_BYTES")
    assert 0.9 * (of_day + 2 * of_hour) < billed(row) <= of_day + 2 * of_hour
    (hour, _) = ({name: row[name]} for name in hours)
    assert 0.8 * of_hour < size(hour) <= of_hour


def test_the_alarms_and_metrics_of_a_stack_are_counted():
    alarms = [
        each
        for each in template()["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm" and each["Condition"] != "HasQueueAlarm"
    ]
    assert documented("ALARMS", "METRICS") == (len(alarms), len(METRIC_UNITS))
