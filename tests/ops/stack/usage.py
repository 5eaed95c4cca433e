"""An hour of usage that only the aggregator can have stored, and calls of the provisioner."""

import time

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock
from zae_limiter_ops.infra import names

LIMITS = [Limit.per_hour("rpm", 1000)]
STORED_WITHIN_S = 60.0  # a cold function on a busy machine
PAUSE_S = 0.05


def use_and_turn_the_hour(opening, *, amount=7):
    """Charge a bucket in two hours; the second charge leaves the first hour in the item."""
    clock = FakeClock()
    with SyncRepository.open(**opening, clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-1", "gpt-4", {"rpm": amount}, limits=LIMITS):
            pass
        clock.advance(seconds=3600)
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
            pass


def bucket_item(deployment):
    """Return the stored bucket of the test."""
    with deployment.opened_engine() as engine:
        items = engine.client.call("Scan", {})["Items"]
    return next(item for item in items if "/BUCKET#" in item["PK"]["S"])


def is_cleared(deployment):
    """Return whether the item has lost its finished hour; only the aggregator clears an hour."""
    return "ph" not in bucket_item(deployment)


def wait_until(condition, within_s=STORED_WITHIN_S):
    give_up_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(PAUSE_S)


def calls_of(deployment):
    """Return the number of the provisioner's invocations, from the lines in its log."""
    group = names.log_group(names.provisioner_function(deployment.name))
    pages = deployment.manager.control.call("logs", "filter_log_events", logGroupName=group)
    return sum("START RequestId" in event["message"] for event in pages["events"])
