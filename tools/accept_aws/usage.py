"""An hour ends, and the aggregator stores its usage."""

from __future__ import annotations

import time

from tools.accept_aws.run import Run
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

NAMESPACE, ENTITY, RESOURCE = "accept-usage", "key-1", "gpt-4"
LIMITS = [Limit.per_hour("rpm", 1000)]
HOUR_MS = 3_600_000


def turn_an_hour(run: Run) -> str:
    """Charge a bucket in the last two full hours, and wait for the row of the first.

    The clock of the client is set back, so nobody waits for the end of a real hour. The second
    charge leaves the finished hour in the bucket; only the aggregator removes it from there.
    """
    hour_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    clock = FakeClock(hour_ms - 2 * HOUR_MS)
    opening = {**run.opening, "namespace": NAMESPACE}
    with SyncRepository.open(**opening, clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        with limiter.acquire(ENTITY, RESOURCE, {"rpm": 7}, limits=LIMITS):
            pass
        clock.advance(hours=1)
        with limiter.acquire(ENTITY, RESOURCE, {"rpm": 1}, limits=LIMITS):
            pass
        namespace_id = repository.get_namespace(NAMESPACE).namespace_id
        started = time.monotonic()
        run.wait_until(
            "the aggregator's update", lambda: "ph" not in _bucket_item(run, namespace_id)
        )
        seconds = time.monotonic() - started
        hours, _ = repository.get_usage_snapshots(ENTITY, window_type="hourly")
    amounts = [hour.counters["rpm"] for hour in hours]
    assert amounts == [7, 1], f"the usage rows hold {amounts}"
    return f"the aggregator has stored the hour {seconds:.1f} s after its end"


def _bucket_item(run: Run, namespace_id: str) -> dict[str, object]:
    """Return the stored bucket of the step."""
    with run.deployment.opened_engine() as engine:
        items = engine.client.call("Scan", {"ConsistentRead": True})["Items"]
    prefix = f"{namespace_id}/BUCKET#"
    return next(item for item in items if item["PK"]["S"].startswith(prefix))
