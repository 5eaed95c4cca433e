"""A real service in a thread, or as a process of its own, and a client for it."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

from zae_limiter_service.launch import bind
from zae_limiter_service.settings import ServiceSettings
from zae_limiter_service.stores import NamespaceStores
from zae_limiter_service.worker import ServiceWorker, WorkerPlace, run_loop

STARTED_WITHIN_S = 60


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """Sends requests over one connection that stays open."""

    def __init__(self, port, token=None, host="127.0.0.1", context=None):
        self.port, self.token, self.host, self.context = port, token, host, context
        self._connection = None

    def ask(self, method, path, body=None, **headers):
        """Send a request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if method in ("POST", "PUT") else {}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value is not None}
        for attempt in (1, 2):
            try:
                connection = self.connected()
                connection.request(method, path, data, sent)
                found = connection.getresponse()
                return Answer(found.status, dict(found.getheaders()), found.read())
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                self.close()
                if attempt == 2:
                    raise
        return None

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, body=None, **headers):
        return self.ask("POST", path, {} if body is None else body, **headers)

    def acquire(self, amounts, entity="user-1", resource="gpt-4", **others):
        headers = {name: others.pop(name) for name in list(others) if name[0].isupper()}
        body = {"entity": entity, "resource": resource, "amounts": amounts, **others}
        return self.post("/v1/leases", body, **headers)

    def lease(self, amounts, **others):
        answer = self.acquire(amounts, **others)
        assert answer.status == 201, answer
        return answer.json["id"]

    def settle(self, lease, amounts, **others):
        headers = {name: others.pop(name) for name in list(others) if name[0].isupper()}
        return self.post(f"/v1/leases/{lease}/settle", {"amounts": amounts, **others}, **headers)

    def delete(self, path):
        return self.ask("DELETE", path)

    def remaining(self, entity="user-1", resource="gpt-4"):
        answer = self.post("/v1/check", {"entity": entity, "resource": resource})
        return {each["limit_name"]: each["available"] for each in answer.json["limits"]}

    def metric(self, name, **labels):
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        line = f"zae_limiter_service_{name}" + (f"{{{shown}}}" if shown else "")
        for each in self.get("/metrics").body.decode().splitlines():
            if each.startswith(f"{line} "):
                return float(each.rpartition(" ")[2])
        return 0.0

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connected(self):
        if self._connection is None:
            if self.context is None:
                kind, options = http.client.HTTPConnection, {}
            else:
                kind, options = http.client.HTTPSConnection, {"context": self.context}
            self._connection = kind(self.host, self.port, timeout=60, **options)
        return self._connection


class ThreadedService:
    """A worker in a thread of the test."""

    def __init__(self, settings, place=None, page=None):
        self.listener = bind(settings.host, settings.port, "port")
        self.listener.listen(100)
        settings = replace(settings, port=self.listener.getsockname()[1])
        self._held = None
        if settings.grpc_port is not None:
            self._held = bind(settings.host, settings.grpc_port, "grpc_port", shared=True)
            settings = replace(settings, grpc_port=self._held.getsockname()[1])
        settings.check()
        self.settings = settings
        self.place = place or WorkerPlace("test-host")
        self._ready = threading.Event()
        self._failure = None
        self.worker = self._loop = None
        self._thread = threading.Thread(target=self._run, args=(page,), daemon=True)
        self._thread.start()
        assert self._ready.wait(STARTED_WITHIN_S)
        if self._failure is not None:
            raise self._failure
        self._clients = []
        wait_for_port(self.port)

    @property
    def port(self):
        return self.settings.port

    def client(self, token=None, **options):
        client = Client(self.port, token, **options)
        self._clients.append(client)
        return client

    def stop(self):
        """Stop, and wait for the end."""
        for client in self._clients:
            client.close()
        if self._thread.is_alive():
            self.begin_stop()
        self.join()
        if self._held is not None:
            self._held.close()

    def join(self):
        """Wait for the end of a service that stops."""
        self._thread.join(60)
        assert not self._thread.is_alive()

    def begin_stop(self):
        self._loop.call_soon_threadsafe(self.worker.stop)

    def _run(self, page):
        async def main():
            try:
                stores = await NamespaceStores.open(self.settings.url, self.settings.namespace)
                self.worker = ServiceWorker(self.settings, self.place, stores, page)
                self._loop = asyncio.get_running_loop()
            except BaseException as error:
                self._failure = error
                self._ready.set()
                raise
            self._loop.call_soon(self._ready.set)
            await self.worker.serve(self.listener)

        run_loop(main())


def service_settings(**options):
    """Settings for tests: any free port, no token, no waiting at the end."""
    return ServiceSettings(
        **{"port": 0, "no_auth": True, "namespace": "default", "drain_s": 0.0, **options}
    )


def wait_for_port(port, host="127.0.0.1"):
    give_up_at = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < give_up_at:
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens at port {port}")


class ServiceProcess:
    """``zae-limiter serve`` as a process of its own."""

    def __init__(self, *arguments, env=None):
        command = [sys.executable, "-m", "zae_limiter", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.lines = []
        self.grpc_port = None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"serving at \w+://\S+:(\d+)(?:,.* port (\d+))?", line)
            if found:
                self.port = int(found[1])
                self.grpc_port = found[2] and int(found[2])
                break
        else:
            raise AssertionError(self.process.stderr.read())
        # What follows is read, so that the process never waits for a full pipe.
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        wait_for_port(self.port)

    def client(self, token=None):
        return Client(self.port, token)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, within_s=60):
        """Ask the process to stop; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for reader in self._readers:
                reader.join(10)
            self.process.stdout.close()
            self.process.stderr.close()
        return code

    def _read(self, stream):
        self.lines += list(stream)


@contextmanager
def running(*arguments, env=None):
    service = ServiceProcess(*arguments, env=env)
    try:
        yield service
    finally:
        service.stop()
