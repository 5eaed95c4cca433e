"""A world in each of the trees, and what its requests cost."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.dynamodb.capacity.documented import Cost, documented
from tests.integration.dynamodb.capacity.world import PARENT, RPM, TPM, USER, world_of
from tests.support.dynamodb.tables import empty_table
from tests.support.dynamodb.trees import AsyncTree, SyncTree
from zae_limiter.testing import FakeClock


@pytest.fixture
def stack(credentials, endpoint):
    """The name of a table of the test."""
    with empty_table(endpoint) as name:
        yield name


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def world(request, stack, proxy, endpoint, clock):
    """An empty table."""
    async with world_of(request.param(), stack, proxy, endpoint, clock) as world:
        yield world


@pytest.fixture
async def configured(world):
    """System defaults of two limits."""
    await world.admin.set_system_defaults([RPM, TPM])
    return world


@pytest.fixture
async def family(configured):
    """The user is a child that cascades."""
    await configured.admin.create_entity(PARENT)
    await configured.admin.create_entity(USER, parent_id=PARENT, cascade=True)
    return configured


def _record(operation, expected, seen):
    """Append a measurement to the file that ``ZAEL_RECORD_COSTS`` names, if it names one."""
    if file := os.environ.get("ZAEL_RECORD_COSTS"):
        row = {"operation": operation, "documented": expected, "seen": seen}
        with Path(file).open("a") as costs:
            costs.write(json.dumps(row) + "\n")


@pytest.fixture
def cost_of(proxy):
    """What runs in its block must cost what the documentation says, to the unit."""

    @contextmanager
    def cost_of(operation):
        expected = documented()[operation]
        with proxy.measure() as seen:
            yield seen
        _record(operation, expected, Cost.of(seen))
        assert Cost.of(seen) == expected, f"{operation}: {Cost.of(seen)} {seen.operations}"

    return cost_of
