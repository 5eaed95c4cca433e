"""Servers in Docker containers: DynamoDB Local or LocalStack.

``docker-compose.yml`` of the repository runs the same containers; a test compares it with this
module.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from zae_limiter_ops.local import HOST, LocalServerError, PortTakenError
from zae_limiter_ops.local.status import answer_ms

CONTAINER = "zae-limiter-local"
SOCKET = "/var/run/docker.sock"
STARTED_WITHIN_S = 120.0  # LocalStack starts slowly, on a machine that may be busy
PAUSE_S = 0.2
END_WITHIN_S = 10  # after this time Docker kills the container
PULLED_WITHIN_S = 1800.0  # an image has hundreds of megabytes, and the network may be slow
ANSWER_WITHIN_S = 60.0
LOG_OPTIONS = {"max-size": "5m", "max-file": "2"}  # the logs of other servers are bounded alike
QUOTED = 300  # characters of Docker's message in an error


class DockerImage(NamedTuple):
    """An image, and the options of its container. ``volume`` is mounted at the path ``mount``."""

    reference: str
    port: int
    health_path: str
    has_stacks: bool
    volume: str
    mount: str
    is_durable: bool
    user: str | None = None
    binds: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return self.reference.rpartition(":")[2]


IMAGES = {
    # This version runs without an account. It runs each function in a container of its own, and
    # needs the socket of Docker for that.
    "localstack": DockerImage(
        "localstack/localstack:4.14.0",
        4566,
        "/_localstack/health",
        has_stacks=True,
        volume="zae-limiter-localstack",
        mount="/var/lib/localstack",
        is_durable=False,
        binds=(f"{SOCKET}:{SOCKET}",),
    ),
    # The default user of this image may not write to a volume.
    "dynamodb-local": DockerImage(
        "amazon/dynamodb-local:2.6.1",
        8000,
        "/",
        has_stacks=False,
        volume="zae-limiter-dynamodb",
        mount="/home/dynamodblocal/data",
        is_durable=True,
        user="root",
        command=("-jar", "DynamoDBLocal.jar", "-sharedDb", "-dbPath", "./data"),
    ),
}


def run_arguments(image: DockerImage, port: int) -> list[str]:
    """Return the arguments of ``docker`` that start a container, reachable from this machine."""
    return [
        "run",
        "--detach",
        f"--name={CONTAINER}",
        f"--publish={HOST}:{port}:{image.port}",
        *(f"--log-opt={name}={value}" for name, value in LOG_OPTIONS.items()),
        *([f"--user={image.user}"] if image.user else []),
        f"--volume={image.volume}:{image.mount}",
        *(f"--volume={bind}" for bind in image.binds),
        image.reference,
        *image.command,
    ]


class DockerEngine:
    """The Docker engine that the command ``docker`` talks to."""

    def __init__(self) -> None:
        program = shutil.which("docker")
        if program is None:
            raise LocalServerError(
                "Docker is not installed; install it, or use a server that needs none: "
                "--engine dynoxide, or --engine ministack"
            )
        self.program = program

    def check(self) -> None:
        """Raise if no Docker engine answers."""
        try:
            self._call("version", "--format", "{{.Server.Version}}")
        except LocalServerError as error:
            raise LocalServerError(
                f"no Docker engine answers ({error}); start it, or use a server that needs none: "
                "--engine dynoxide, or --engine ministack"
            ) from error

    def start(self, image: DockerImage, port: int, report: Callable[[str], None]) -> str:
        """Start a container and wait until its server answers; return the container's id."""
        try:
            self._call("image", "inspect", "--format", "{{.Id}}", image.reference)
        except LocalServerError:
            report(f"pulling {image.reference}")
            self._call("pull", "--quiet", image.reference, within_s=PULLED_WITHIN_S)
        self._remove_ended()
        try:
            container = self._call(*run_arguments(image, port)).split()[-1]
        except LocalServerError as error:
            self._remove_ended()  # Docker leaves a container that could not bind its port
            if "port is already allocated" in str(error) or "address already in" in str(error):
                raise PortTakenError(f"port {port} is taken by another program") from error
            raise
        try:
            self.wait_until_ready(container, port, image.health_path)
        except BaseException:
            self.remove(container)
            raise
        return container

    def wait_until_ready(self, container: str, port: int, health_path: str) -> None:
        """Wait until the server answers over HTTP; an open port alone does not mean ready."""
        give_up_at = time.monotonic() + STARTED_WITHIN_S
        while answer_ms(port, health_path) is None:
            if not self.is_running(container):
                last_lines = self._call("logs", "--tail", "5", container)
                raise LocalServerError(
                    f"the container ended: {last_lines or 'its log is empty'}; check that Docker "
                    "has enough memory and disk space, and start the server again"
                )
            if time.monotonic() > give_up_at:
                raise LocalServerError(
                    f"the container did not answer within {STARTED_WITHIN_S:g} s; start the server "
                    "again when the machine is less busy"
                )
            time.sleep(PAUSE_S)

    def is_running(self, container: str) -> bool:
        """Return whether the container runs; False if no engine answers."""
        try:
            return self._call("inspect", "--format", "{{.State.Running}}", container) == "true"
        except LocalServerError:
            return False

    def stop(self, container: str) -> None:
        self._call("stop", "-t", str(END_WITHIN_S), container)
        self.remove(container)

    def remove(self, container: str) -> None:
        """Remove a container if it exists; its volumes stay."""
        self._call("rm", "--force", container)

    def _remove_ended(self) -> None:
        """Remove a container of our name, unless it runs: another program may have started it."""
        with suppress(LocalServerError):
            if not self.is_running(CONTAINER):
                self.remove(CONTAINER)

    def remove_volume(self, volume: str) -> None:
        self._call("volume", "rm", "--force", volume)

    def logs_command(self, container: str, lines: int, *, follow: bool) -> list[str]:
        """Return the command that prints the log of a container."""
        options = ["--follow"] if follow else []
        return [self.program, "logs", f"--tail={lines}", *options, container]

    def _call(self, *arguments: str, within_s: float = ANSWER_WITHIN_S) -> str:
        return _output([self.program, *arguments], within_s)


def _output(command: Sequence[str], within_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=within_s,
        )
    except subprocess.TimeoutExpired:
        raise LocalServerError(f"docker {command[1]} took more than {within_s:g} s") from None
    if done.returncode:
        message = " ".join(done.stderr.split())[-QUOTED:]
        raise LocalServerError(f"docker {command[1]}: {message or f'exit code {done.returncode}'}")
    return done.stdout.strip()
