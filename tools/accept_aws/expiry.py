"""The TTL: expired audit events leave the table and arrive in the archive, which takes days."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

from tools.accept_aws.records import Skip
from tools.accept_aws.run import Run
from zae_limiter import SyncRepository
from zae_limiter.testing import FakeClock
from zae_limiter_ops.views.formatting import count_of

NAMESPACE, ENTITY = "accept-expiry", "expiring"
DAY_MS = 86_400_000
AGE_DAYS = 100  # more than the 90 days that audit events are kept, less than TTL's five years


def plan_file(run: Run) -> Path:
    """The file with the ids of the events whose expiry a later run looks for."""
    return run.settings.folder / "expiry.json"


def plant(run: Run) -> str:
    """Store audit events that have expired already."""
    if not run.settings.keep:
        raise Skip("AWS deletes expired items within days: run with --keep, and later --resume")
    now_ms = time.time_ns() // 1_000_000
    clock = FakeClock(now_ms - AGE_DAYS * DAY_MS)
    with SyncRepository.open(**run.opening, namespace=NAMESPACE, clock=clock) as repository:
        repository.create_entity(ENTITY)
        ids = [event.event_id for event in repository.get_audit_events(ENTITY)]
    assert ids, "no audit event was stored"
    plan_file(run).write_text(json.dumps({"planted_ms": now_ms, "event_ids": ids}))
    return f"{count_of(len(ids), 'expired audit event')} stored; look for them with --resume"


def look(run: Run) -> str:
    """Require that the planted events are in the archive and no longer in the table."""
    if not plan_file(run).exists():
        raise Skip(f"{plan_file(run)} does not exist: the first run was not made with --keep")
    plan = json.loads(plan_file(run).read_text())
    hours = (time.time_ns() // 1_000_000 - plan["planted_ms"]) / 3_600_000
    with SyncRepository.open(**run.opening, namespace=NAMESPACE) as repository:
        stored = {event.event_id for event in repository.get_audit_events(ENTITY)}
    if waiting := stored & set(plan["event_ids"]):
        count = count_of(len(waiting), "event")
        raise Skip(f"{count} still stored after {hours:.1f} h: look again later")
    lost = set(plan["event_ids"]) - _archived_ids(run)
    assert not lost, f"lost, neither in the table nor in the archive: {', '.join(sorted(lost))}"
    return f"all events were archived within {hours:.1f} h"


def _archived_ids(run: Run) -> set[str]:
    bucket = run.deployment.manager.outputs()["ArchiveBucket"]
    found = set()
    for page in run.control.pages("s3", "list_objects_v2", Bucket=bucket, Prefix="audit/"):
        for entry in page.get("Contents", ()):
            stored = run.control.call("s3", "get_object", Bucket=bucket, Key=entry["Key"])
            text = gzip.decompress(stored["Body"].read()).decode()
            found |= {json.loads(line)["event_id"] for line in text.splitlines()}
    return found
