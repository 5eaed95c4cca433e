"""What both trees say about the engines that come with the package.

Their capabilities are promised here once more: an engine that loses one fails the suite, instead
of having the tests of it left out.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Container
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.dynamodb import shared_endpoint, shared_proxy
from tests.support.dynamodb.tables import store_url
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.store_url import parse_url

MEMORY = BackendCapabilities(
    engine="memory",
    durable=False,
    shared_between_processes=False,
    atomic_cascade=True,
    usage_history=True,
)
SQLITE = BackendCapabilities(
    engine="sqlite",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=True,
    usage_history=True,
)
DYNAMODB = BackendCapabilities(
    engine="dynamodb",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=False,
    usage_history=True,
    infrastructure=True,
)
OUTAGES = ("outage", "any_outage")  # fixtures of the suite
# Long enough for a busy machine to open a connection. Longer for a server that is far away.
MOMENT_S = float(os.environ.get("ZAEL_TEST_MOMENT_S", "2"))


def dynamodb_url(stack: str, fixtures: Container[str] = ()) -> str:
    """Return the URL of a table; for a test with a fixture for outages it leads through the proxy.

    The proxy makes the outages, and doubles the work of every request.
    """
    is_proxied = any(name in fixtures for name in OUTAGES)
    return store_url(stack, shared_proxy().url if is_proxied else shared_endpoint())


def sqlite_url(folder: Path) -> str:
    """A file that no test expects to survive a power cut: the disk is not waited for."""
    return f"sqlite:///{folder}/limits.db?synchronous=OFF"


class SqliteOutage:
    """Another program holds the file's write lock and does not let go."""

    url: str

    @contextmanager
    def outage(self):
        path = parse_url(self.url).place
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield


class DynamoOutage:
    """Nothing accepts connections any more: it is certain that nothing is carried out."""

    url: str

    def outage(self):
        proxied = parse_url(self.url).options["endpoint_url"] == shared_proxy().url
        assert proxied, f"a test with an outage must request a fixture of {OUTAGES}"
        return shared_proxy().refusing()
