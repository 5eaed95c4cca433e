"""Answers that leave a part of a batch undone: the rest is asked for again."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.integration.dynamodb.ports.world import NS
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import DynamoStore
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import keys, system
from zae_limiter.items.stored.keys import Key
from zae_limiter.runtime.parallel import Parallel

KEYS = [Key(f"pk-{number}", "sk") for number in range(60)]


async def test_items_of_more_than_one_answer_s_size_are_all_read(proxied, proxy, raw):
    """An answer ends at 16 MB."""
    for number in range(60):
        raw.put(system.encode_document(NS, f"{number}", {"long": "x" * 380_000}))
    wanted = [keys.record(NS, f"{number}") for number in range(70)]
    with proxy.measure() as seen:
        found = await proxied.store.get_several(wanted, consistent=True, deadline=Deadline(60))
    assert seen.calls == 2
    assert sorted(found) == sorted(wanted[:60])


async def test_more_keys_than_a_batch_may_have_are_all_read(proxied, proxy, raw):
    items = [system.encode_document(NS, f"{number}", {}) for number in range(230)]
    raw.put(*items)
    wanted = [keys.record(NS, f"{number}") for number in range(230)]
    with proxy.measure() as seen:
        found = await proxied.store.get_several(wanted * 2, consistent=False)
    assert seen.calls == 3
    assert found == dict(zip(wanted, items, strict=True))
    assert await proxied.store.get_several([], consistent=True) == {}


@contextmanager
def busy_server(most):
    """Takes up to ``most`` items of each batch and leaves the rest."""
    done = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["content-length"])
            body = json.loads(self.rfile.read(length))
            ((table, requests),) = body["RequestItems"].items()
            answer = self.read if "Keys" in requests else self.deleted
            content = json.dumps(answer(table, requests)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def deleted(self, table, requests):
            done.extend(request["DeleteRequest"]["Key"] for request in requests[:most])
            return {"UnprocessedItems": {table: requests[most:]} if requests[most:] else {}}

        def read(self, table, request):
            taken, left = request["Keys"][:most], request["Keys"][most:]
            done.extend(taken)
            unread = {table: {**request, "Keys": left}} if left else {}
            return {"Responses": {table: taken}, "UnprocessedKeys": unread}

        def log_message(self, *args):
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", done
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_what_was_left_of_a_batch_is_done_in_the_end():
    with busy_server(most=7) as (url, done):
        client = DynamoClient("some-table-name", endpoint_url=url)
        await DynamoStore(client, Parallel()).delete_many(KEYS)
        assert sorted(map(str, done)) == sorted(str(key.attributes) for key in KEYS)
        done.clear()
        assert (
            list(await DynamoStore(client, Parallel()).get_several(KEYS, consistent=True)) == KEYS
        )
        await client.close()


async def test_what_is_never_done_is_an_outage():
    with busy_server(most=0) as (url, _):
        client = DynamoClient("some-table-name", endpoint_url=url, request_timeout=1)
        with pytest.raises(RateLimiterUnavailable, match="delete 25 of 25 items"):
            await DynamoStore(client, Parallel()).delete_many(KEYS[:25])
        with pytest.raises(RateLimiterUnavailable, match="read 60 of 60 items"):
            await DynamoStore(client, Parallel()).get_several(KEYS, consistent=True)
        await client.close()
