"""The command lines that run containers, and the compose file with the same containers."""

from pathlib import Path

import pytest
import yaml

from zae_limiter_ops.cli.local.commands import ENGINES, PORT
from zae_limiter_ops.cli.local.commands import IMAGES as OFFERED_IMAGES
from zae_limiter_ops.local import PORT as DEFAULT_PORT
from zae_limiter_ops.local import docker, service
from zae_limiter_ops.local.docker import IMAGES, DockerEngine, run_arguments

COMPOSE = yaml.safe_load((Path(__file__).parents[3] / "docker-compose.yml").read_text())

# Answers like the client of Docker, and records its arguments.
CLIENT = """#!/bin/sh
echo "$*" >> {calls}
case "$1" in
    version) echo 28.2.2 ;;
    image) {image} ;;
    run) {run} ;;
    inspect) echo {running} ;;
    logs) echo "it said this" ;;
esac
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Install a client; return the engine and a function that returns its calls so far."""

    def install(*, image="exit 1", run="echo c0ffee", running="true"):
        calls = tmp_path / "calls"
        program = tmp_path / "docker"
        program.write_text(CLIENT.format(calls=calls, image=image, run=run, running=running))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return DockerEngine(), lambda: calls.read_text().splitlines()

    return install


def test_localstack_gets_the_socket_and_listens_on_this_machine_only():
    assert run_arguments(IMAGES["localstack"], 4566) == [
        "run",
        "--detach",
        "--name=zae-limiter-local",
        "--publish=127.0.0.1:4566:4566",
        "--log-opt=max-size=5m",
        "--log-opt=max-file=2",
        "--volume=zae-limiter-localstack:/var/lib/localstack",
        "--volume=/var/run/docker.sock:/var/run/docker.sock",
        "localstack/localstack:4.14.0",
    ]


def test_dynamodb_local_stores_its_tables_in_a_volume():
    assert run_arguments(IMAGES["dynamodb-local"], 8001) == [
        "run",
        "--detach",
        "--name=zae-limiter-local",
        "--publish=127.0.0.1:8001:8000",
        "--log-opt=max-size=5m",
        "--log-opt=max-file=2",
        "--user=root",
        "--volume=zae-limiter-dynamodb:/home/dynamodblocal/data",
        "amazon/dynamodb-local:2.6.1",
        "-jar",
        "DynamoDBLocal.jar",
        "-sharedDb",
        "-dbPath",
        "./data",
    ]


@pytest.mark.parametrize("name", IMAGES)
def test_the_compose_file_runs_the_same_containers(name):
    image, found = IMAGES[name], COMPOSE["services"][name]
    assert found["image"] == image.reference
    assert found["ports"] == [f"127.0.0.1:4566:{image.port}"]
    assert found["volumes"] == [f"{image.volume}:{image.mount}", *image.binds]
    assert found.get("user") == image.user
    assert tuple(found.get("command", ())) == image.command
    assert found["logging"]["options"] == docker.LOG_OPTIONS
    assert COMPOSE["volumes"][image.volume] == {"name": image.volume}


def test_only_localstack_starts_without_a_profile():
    profiles = {name: found.get("profiles") for name, found in COMPOSE["services"].items()}
    assert profiles == {"localstack": None, "dynamodb-local": ["dynamodb-local"]}


def test_the_command_line_offers_what_there_is():
    assert service.ENGINES == ENGINES
    assert tuple(IMAGES) == OFFERED_IMAGES
    assert DEFAULT_PORT == PORT


def test_a_missing_image_is_pulled_and_a_container_that_ends_is_removed(client):
    engine, calls = client(running="false")
    steps = []
    with pytest.raises(service.LocalServerError, match="the container ended: it said this"):
        engine.start(IMAGES["localstack"], 1, steps.append)
    assert steps == ["pulling localstack/localstack:4.14.0"]
    made = calls()
    assert "pull --quiet localstack/localstack:4.14.0" in made
    assert " ".join(run_arguments(IMAGES["localstack"], 1)) in made
    assert made[-1] == "rm --force c0ffee"


def test_an_image_that_is_there_is_not_pulled(client):
    engine, calls = client(image="echo sha256:1", running="false")
    with pytest.raises(service.LocalServerError):
        engine.start(IMAGES["dynamodb-local"], 1, pytest.fail)
    assert not [call for call in calls() if call.startswith("pull")]


def test_a_port_that_docker_finds_taken_is_reported(client):
    engine, _ = client(
        run='echo "Bind for 127.0.0.1:1 failed: port is already allocated" >&2; exit 125'
    )
    with pytest.raises(service.PortTakenError, match="port 1 is taken"):
        engine.start(IMAGES["localstack"], 1, print)


def test_a_running_container_of_our_name_is_never_removed(client):
    refusal = 'echo "Conflict. The container name /zae-limiter-local is in use" >&2; exit 125'
    engine, calls = client(run=refusal)
    with pytest.raises(service.LocalServerError, match="Conflict"):
        engine.start(IMAGES["localstack"], 1, print)
    assert not [call for call in calls() if call.startswith("rm")]


def test_a_container_is_stopped_then_removed(client):
    engine, calls = client()
    engine.stop("c0ffee")
    assert calls() == ["stop -t 10 c0ffee", "rm --force c0ffee"]


def test_logs_are_dockers_own(client):
    engine, _ = client()
    assert engine.logs_command("c0ffee", 7, follow=True)[1:] == [
        "logs",
        "--tail=7",
        "--follow",
        "c0ffee",
    ]
