"""Applies on a network that loses requests and answers: finished by the next one, logged once."""

import pytest

from zae_limiter import ZAELimiterError
from zae_limiter_ops.manifest.declarations import LimitsManifest

# An apply of this makes five transactions: the lease, the state to come, two batches, the end.
ENTITIES = {f"entity-{number}": {"limits": {"rpm": 5}} for number in range(60)}
MANIFEST = LimitsManifest.from_dict({"system": {"limits": {"rpm": 9}}, "entities": ENTITIES})
TRANSACTIONS = 6


@pytest.mark.fast("lose_answer-2", "error_after-3")
@pytest.mark.parametrize("skip", range(TRANSACTIONS))
@pytest.mark.parametrize(
    "kind",
    [
        "lose_answer",
        "error_after",
        pytest.param("error_before", marks=pytest.mark.slow),  # certain: nothing to find out
        pytest.param("throttle", marks=pytest.mark.slow),
    ],
)
async def test_a_transaction_that_fails_leaves_nothing_half_done(world, proxy, kind, skip):
    repo = (await world.client(proxy)).repo
    provisioner = repo.provisioner("alice")
    with proxy.fault(kind, operation="TransactWriteItems", times=1, skip=skip):
        try:
            await provisioner.apply(MANIFEST, wait_seconds=0)
        except ZAELimiterError:
            world.clock.advance(minutes=1)  # the lease may not have been given back
    await provisioner.apply(MANIFEST, wait_seconds=0)
    assert (await provisioner.plan(MANIFEST)).is_empty
    state = await repo.get_provisioner_state()
    assert state["lease"] is None
    events = await repo.get_audit_events(limit=1000)
    subjects = [event.entity_id for event in events if event.action == "limits_set"]
    assert sorted(subjects) == sorted(["$SYSTEM", *ENTITIES]), "each change is logged once"


async def test_an_apply_of_nothing_new_writes_nothing(world, proxy):
    repo = (await world.client(proxy)).repo
    provisioner = repo.provisioner()
    await provisioner.apply(MANIFEST)
    with proxy.measure() as seen:
        await provisioner.apply(MANIFEST)
    assert {each.operation.partition(" of ")[0] for each in seen.requests} <= {
        "BatchGetItem",
        "GetItem",
    }
    assert len(seen.requests) <= 4


async def test_a_batch_is_one_transaction_and_one_read(world, proxy):
    repo = (await world.client(proxy)).repo
    with proxy.measure() as seen:
        await repo.provisioner().apply(MANIFEST)
    transactions = [each for each in seen.requests if each.operation == "TransactWriteItems"]
    assert len(transactions) <= TRANSACTIONS
    assert max(len(each.body["TransactItems"]) for each in transactions) <= 100
