"""Names that a stack cannot have are refused before anything is asked or created."""

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.logging_endpoint import LoggingEndpoint
from tests.support.ministack import REGION
from zae_limiter import InvalidNameError, SyncRepository
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._sync.infra.deployment import Deployment, functions

REASONS = {"ab": "must have at least 3 characters", "a" * 46: "must have at most 45 characters"}
COMMANDS = (
    *("deploy", "deploy --plan", "status", "check", "upgrade --yes", "delete --yes"),
    *("loadtest deploy -C .", "loadtest delete --yes", "system set-defaults -l rpm:5"),
)


@pytest.fixture
def endpoint(control_plane):
    with LoggingEndpoint(control_plane.url) as endpoint:
        yield endpoint


@pytest.mark.parametrize("name", REASONS, ids=["too short", "too long"])
def test_no_command_asks_anything_about_a_stack_that_cannot_be(endpoint, capsys, name):
    line = CommandLine(capsys, "")
    for words in COMMANDS:
        place = ("--name", name, "--region", REGION, "--endpoint-url", endpoint.url)
        assert REASONS[name] in line(*words.split(), *place).error(2), words
    assert endpoint.seen == []


@pytest.mark.each_value_once
@pytest.mark.parametrize("name", REASONS, ids=["too short", "too long"])
@pytest.mark.parametrize("provision", ["stack", "table", "never"])
def test_nor_does_an_opening(endpoint, name, provision):
    with pytest.raises(InvalidNameError, match=REASONS[name]):
        SyncRepository.open(
            stack=name, region=REGION, endpoint_url=endpoint.url, provision=provision
        )
    assert endpoint.seen == []


@pytest.mark.parametrize("length", [3, 45])
def test_the_shortest_and_the_longest_name_can_be_deployed(control_plane, length):
    deployment = Deployment(("n" * 45)[:length], REGION, control_plane.url)
    try:
        assert set(deployment.deploy(StackOptions()).functions) == set(functions(deployment.name))
    finally:
        deployment.delete()
        deployment.close()
