"""The ports of the engine over a table of each test, in both trees."""

import pytest

from tests.integration.dynamodb.ports import world
from zae_limiter._async.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter._sync.engines.dynamodb.provisioning import make_table as make_table_sync
from zae_limiter._sync.engines.dynamodb.provisioning import remove_table as remove_table_sync


@pytest.fixture
async def ports(endpoint, unique_name):
    """Directly on the server."""
    ports = world.ports(unique_name, endpoint)
    await make_table(ports.client)
    yield ports
    await remove_table(ports.client)
    await ports.client.close()


@pytest.fixture
async def proxied(ports, proxy):
    """The same table, through a proxy that counts and breaks."""
    proxied = world.ports(ports.client.table, proxy.url)
    yield proxied
    await proxied.client.close()


@pytest.fixture
def sync_ports(endpoint, unique_name):
    ports = world.sync_ports(unique_name, endpoint)
    make_table_sync(ports.client)
    yield ports
    remove_table_sync(ports.client)
    ports.client.close()


@pytest.fixture
def raw(ports, endpoint, boto):
    """The items of the table, seen and written by other means."""
    return world.Raw(boto(endpoint), ports.client.table)
