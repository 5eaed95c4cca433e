import os

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.ministack import REGION, Ministack
from zae_limiter_ops._sync.infra.deployment import Deployment


@pytest.fixture(scope="session")
def control_plane():
    """A control plane that tests share; each has a stack of its own."""
    with Ministack() as ministack:
        yield ministack


@pytest.fixture(autouse=True)
def local_credentials(monkeypatch):
    """Use the key that has all permissions on a control plane that checks them."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "ZAEL_"))]:
        if name not in ("ZAEL_MINISTACK", "ZAEL_DYNOXIDE", "ZAEL_TEST_ENDPOINT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def place(control_plane, unique_name):
    """Name, region and endpoint of a stack that is deleted after the test."""
    place = (unique_name, REGION, control_plane.url)
    yield place
    deployment = Deployment(*place)
    try:
        deployment.delete()
    finally:
        deployment.close()


@pytest.fixture
def deployment(place):
    deployment = Deployment(*place)
    yield deployment
    deployment.close()


@pytest.fixture
def opening(place):
    """The arguments with which a repository of the stack is opened."""
    return {"stack": place[0], "region": place[1], "endpoint_url": place[2]}


@pytest.fixture
def command(capsys, place):
    """Run a command on the stack of the test."""
    name, region, endpoint_url = place
    line = CommandLine(capsys, "")

    def run(*words):
        which = () if words[0] == "list" else ("--name", name)
        return line(*words, *which, "--region", region, "--endpoint-url", endpoint_url)

    return run
