"""Real servers for tests of web applications, and a client that can hang up."""

import asyncio
import json
import multiprocessing
import os
import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn

ROOT = Path(__file__).parents[2]
# gunicorn, Django and FastAPI take a second to import, so servers are forks of a process that has
# imported them.
_warm = multiprocessing.get_context("forkserver")
_warm.set_forkserver_preload(["gunicorn.app.wsgiapp", "tests.integration.web.apps"])


@asynccontextmanager
async def asgi_server(app, unix_path=None):
    """Serve an ASGI application on this event loop; yields the port, or the path of a socket."""
    listener = listening(unix_path)
    config = uvicorn.Config(app, log_level="critical", lifespan="auto", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.005)
    try:
        yield unix_path or listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


def listening(unix_path=None):
    if unix_path is None:
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(unix_path))
    listener.listen()
    return listener


@contextmanager
def gunicorn_server(app, unix_path=None, **environment):
    """Serve a WSGI application, named as gunicorn names it, in processes of gunicorn.

    Yields the port, or the path of a unix socket. A client may connect before the worker has
    started: the socket listens already.
    """
    listener = listening(unix_path)
    variables = {**os.environ, **environment}
    server = _warm.Process(target=_run_gunicorn, args=(app, listener, variables))
    server.start()
    try:
        yield unix_path or listener.getsockname()[1]
    finally:
        server.terminate()
        server.join(30)
        assert server.exitcode == 0
        listener.close()


def _run_gunicorn(app, listener, environment):
    from gunicorn.app.wsgiapp import run

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = ["gunicorn", "--bind", f"fd://{listener.detach()}", "--log-level", "error"]
    sys.argv += ["--graceful-timeout", "5", "--no-control-socket", app]
    run()


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def wsgi_server(app):
    """Serve a WSGI application in a thread; yields the port."""
    server = make_server("127.0.0.1", 0, app, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    header_list: list[tuple[str, str]] = field(default_factory=list)

    def json(self):
        return json.loads(self.body)


def request_bytes(path, headers, body):
    lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: test", "Connection: close"]
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    lines += [f"{name}: {value}" for name, value in pairs]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, "", ""])
    return head.encode(errors="surrogateescape") + (body or b"")  # "\udca0" is the byte A0


def parsed(data):
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = [line.split(":", 1) for line in lines]
    header_list = [(name.lower(), value.strip()) for name, value in pairs]
    headers = dict(header_list)
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    return Reply(int(first.split()[1]), headers, body, header_list)


def unchunked(data):
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return body


async def fetch(port, path="/", headers=None, body=None):
    """Request a page and read the whole reply; hang up if cancelled.

    Headers are a dict, or pairs.
    """
    reader, writer = await connected(port)
    try:
        writer.write(request_bytes(path, headers, body))
        data = await reader.read()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    writer.close()
    await writer.wait_closed()
    return parsed(data)


async def connected(port):
    if isinstance(port, Path):
        return await asyncio.open_unix_connection(port)
    return await asyncio.open_connection("127.0.0.1", port)


async def hang_up(port, path="/", until=b"", headers=None, body=None):
    """Request a page, read up to some bytes of the reply, and close the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(path, headers, body))
    await reader.readuntil(until)
    writer.transport.abort()


async def wait_until(condition, seconds=20):
    """Wait for what happens without a word; the condition may be async."""
    async with asyncio.timeout(seconds):
        while True:
            met = condition()
            if await met if isawaitable(met) else met:
                return
            await asyncio.sleep(0.01)


def fetch_sync(port, path="/", headers=None, body=None):
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_bytes(path, headers, body))
        data = b""
        while piece := connection.recv(65_536):
            data += piece
    return parsed(data)


def hang_up_sync(port, path="/", until=b"", headers=None):
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_bytes(path, headers, None))
        data = b""
        while until not in data:
            data += connection.recv(65_536)
