"""A write of a killed apply arrives after the next apply has planned."""

import threading

import pytest

from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import RateLimiterUnavailable, SyncRepository
from zae_limiter_ops._sync.provisioner import SyncProvisioner
from zae_limiter_ops.manifest.declarations import LimitsManifest

READS = ("GetItem", "BatchGetItem", "Query")
LEASE_S = 0.2
LATE_MS, LATER_MS = 1000, 2000  # so much later that the next apply has planned by then


def manifest(rpm):
    return LimitsManifest.from_dict({"entities": {"user": {"limits": {"rpm": rpm}}}})


@pytest.fixture
def opened():
    """Open one table through two proxies; return both repositories, each with its proxy."""
    with empty_table() as table, Proxy(shared_endpoint()) as one, Proxy(shared_endpoint()) as other:
        opened = []
        for proxy, seconds in ((one, 1), (other, 6)):
            builder = SyncRepository.builder().url(store_url(table, proxy.url))
            builder.request_timeout(seconds).register_missing_namespace()
            opened.append(builder.build())
        yield [*zip(opened, (one, other), strict=True)]
        for repository in opened:
            repository.close()


def is_change(exchange):
    return exchange.operation == "TransactWriteItems" and b"ENTITY#user" in exchange.raw_body


@pytest.mark.parametrize("is_approved", [False, True])
def test_a_late_write_of_a_killed_apply_changes_nothing_that_the_next_one_has_planned(
    opened, is_approved
):
    (killed, way), (repo, other_way) = opened
    repo.provisioner().apply(manifest(1))
    late = way.fault("late", when=is_change, times=1, delay_ms=LATE_MS)
    way.fault("close", when=lambda _: late.used > 0)  # nothing more of it arrives
    apply = threading.Thread(target=apply_in_vain, args=(killed, manifest(2)))
    apply.start()
    assert wait_until(lambda: late.used)
    approved = repo.provisioner().plan(manifest(1)).revision if is_approved else None
    writes = other_way.fault(
        "late",
        when=lambda exchange: exchange.operation not in READS,
        times=1,
        delay_ms=LATER_MS,
        hold=True,
    )
    repo.provisioner("next").apply(manifest(1), approved=approved)
    assert writes.used == 1
    assert repo.provisioner().plan(manifest(1)).is_empty
    apply.join()


def apply_in_vain(repo, declared):
    context = repo._context  # noqa: SLF001 - a lease of another length
    with pytest.raises(RateLimiterUnavailable):
        SyncProvisioner(context, "killed", lease_seconds=LEASE_S).apply(declared)


def wait_until(holds, seconds=30.0):
    """Return whether the condition becomes true in time."""
    return any(holds() or threading.Event().wait(0.01) for _ in range(int(seconds * 100)))
