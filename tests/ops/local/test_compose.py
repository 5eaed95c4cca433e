"""The compose file: containers that only this machine reaches, and where they keep their data."""

from pathlib import Path

import pytest
import yaml

from zae_limiter_ops.local import HOST, PORT

COMPOSE = yaml.safe_load((Path(__file__).parents[3] / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_listens_on_this_machine_only_at_the_port_of_local_servers(name):
    [port] = SERVICES[name]["ports"]
    assert port.startswith(f"{HOST}:{PORT}:")


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_a_pinned_image_a_volume_and_a_bounded_log(name):
    found = SERVICES[name]
    assert found["image"].rpartition(":")[2] != "latest"
    assert found["volumes"][0].partition(":")[0] in COMPOSE["volumes"]
    assert found["logging"]["options"] == {"max-size": "5m", "max-file": "2"}


def test_localstack_can_start_functions_as_containers():
    assert "/var/run/docker.sock:/var/run/docker.sock" in SERVICES["localstack"]["volumes"]


def test_dynamodb_local_may_write_to_its_volume():
    found = SERVICES["dynamodb-local"]
    assert found["user"] == "root"
    assert found["volumes"] == ["zae-limiter-dynamodb:/home/dynamodblocal/data"]
    assert found["command"][-2:] == ["-dbPath", "./data"]


def test_only_localstack_starts_without_a_profile():
    profiles = {name: found.get("profiles") for name, found in SERVICES.items()}
    assert profiles == {"localstack": None, "dynamodb-local": ["dynamodb-local"]}
