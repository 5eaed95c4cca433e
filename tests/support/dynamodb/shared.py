"""One server and one proxy for all tests of a process."""

from __future__ import annotations

import atexit
import os
from functools import cache

from tests.support.dynamodb.proxy import Proxy
from tests.support.dynamodb.server import DynamoServer


@cache
def shared_endpoint() -> str:
    """``ZAEL_TEST_ENDPOINT``, or a server that is started now and ends with this process."""
    named = os.environ.get("ZAEL_TEST_ENDPOINT")
    if named:
        return named
    server = DynamoServer().start()
    atexit.register(server.kill)
    return server.url


@cache
def shared_proxy() -> Proxy:
    """A proxy before the shared server; a test that breaks something mends it."""
    proxy = Proxy(shared_endpoint()).start()
    atexit.register(proxy.stop)
    return proxy
