"""The ports of the engine over a table of each test, in both trees."""

import pytest

from tests.integration.dynamodb.ports import world
from tests.support.dynamodb.tables import empty_table


@pytest.fixture
def table(credentials, endpoint):
    """The name of an empty table."""
    with empty_table(endpoint) as name:
        yield name


@pytest.fixture
async def ports(endpoint, table):
    """Directly on the server."""
    ports = world.ports(table, endpoint)
    yield ports
    await ports.client.close()


@pytest.fixture
async def proxied(ports, proxy):
    """The same table, through a proxy that counts and breaks."""
    proxied = world.ports(ports.client.table, proxy.url)
    yield proxied
    await proxied.client.close()


@pytest.fixture
def sync_ports(endpoint, table):
    ports = world.sync_ports(table, endpoint)
    yield ports
    ports.client.close()


@pytest.fixture
def raw(ports, endpoint, boto):
    """The items of the table, seen and written by other means."""
    return world.Raw(boto(endpoint), ports.client.table)
