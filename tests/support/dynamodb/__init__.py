"""A DynamoDB-compatible server for tests, and a proxy that counts, delays and breaks things.

A server of one's own, in memory, gone when the test process is::

    from tests.support.dynamodb import DynamoServer, Proxy

    with DynamoServer() as server:                    # server.url, server.kill(), server.restart()
        with Proxy(server.url) as proxy:              # proxy.url leads to the server
            with proxy.measure() as seen:
                ...
            assert (seen.calls, seen.wcu, seen.rcu) == (1, 1, 0)
            assert seen.operations == {"UpdateItem": 1}
            with proxy.fault("lose_answer", operation="UpdateItem", times=1):
                ...                                   # carried out, without an answer

``shared_endpoint()`` leads to one server for all tests of a process, ``shared_proxy()`` to a proxy
before it; ``tables.empty_table()`` is a table there, ``tables.store_url()`` leads a repository to
it.

``ZAEL_TEST_ENDPOINT`` leads them to another server; for the proxy it must be one that does not
check signatures, since the proxy changes what it forwards.

Servers are dynoxide processes: ``make tools`` installs it in ``.tools/``, ``ZAEL_DYNOXIDE`` names
another binary.
"""

from tests.support.dynamodb.faults import Fault
from tests.support.dynamodb.proxy import Proxy
from tests.support.dynamodb.seen import Exchange, Seen
from tests.support.dynamodb.server import DynamoServer
from tests.support.dynamodb.shared import shared_endpoint, shared_proxy

__all__ = [
    "DynamoServer",
    "Exchange",
    "Fault",
    "Proxy",
    "Seen",
    "shared_endpoint",
    "shared_proxy",
]
