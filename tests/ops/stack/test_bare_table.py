"""Commands where DynamoDB has an endpoint of its own, and CloudFormation has none."""

import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.loaders import create_loader

from tests.ops.cli.inprocess import CommandLine
from tests.support.dynamodb import shared_endpoint
from zae_limiter import Limit, SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._sync.infra.deployment import Deployment
from zae_limiter_ops.transport.control import Control

MANIFEST = "system:\n  limits:\n    rpm: 60\n"


@pytest.fixture(params=["variable", "profile", "option"])
def command(request, capsys, monkeypatch, tmp_path):
    """Run a command with DynamoDB's endpoint named in one of three ways."""
    url, more = shared_endpoint(), ()
    if request.param == "variable":
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
    elif request.param == "profile":
        config = tmp_path / "config"
        config.write_text(
            "[profile local]\nregion = eu-west-1\nservices = local\n"
            f"[services local]\ndynamodb =\n  endpoint_url = {url}\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        monkeypatch.setenv("AWS_PROFILE", "local")
    else:
        more = ("--endpoint-url", url)
    line = CommandLine(capsys, "")
    return lambda *words: line(*words, *more)


@pytest.fixture
def manifest(tmp_path):
    file = tmp_path / "limits.yaml"
    file.write_text(MANIFEST)
    return str(file)


def test_every_command_works_on_a_table_without_a_stack(command, manifest, unique_name):
    name = ("--name", unique_name)
    deployed = command("deploy", *name, "--output", "json")
    assert (deployed.code, deployed.json["stack"]) == (0, "table"), deployed.err
    listed = command("list", "--output", "json")
    assert listed.code == 0, listed.err
    assert (unique_name, "TABLE_ONLY") in {
        (each["stack_name"], each["stack_status"]) for each in listed.json
    }
    status = command("status", *name, "--output", "json")
    assert (status.code, status.json["details"]["notes"]) == (0, []), status
    assert command("check", *name).code == 0
    upgraded = command("upgrade", *name, "--yes", "--output", "json")
    assert (upgraded.code, upgraded.json["stack"]) == (0, None), upgraded.err
    assert command("limits", "plan", "-f", manifest, *name).code == 0
    assert command("limits", "apply", "-f", manifest, *name, "--yes").code == 0
    assert command("limits", "diff", "-f", manifest, *name).code == 0
    assert "rpm" in command("system", "get-defaults", *name).out
    deleted = command("delete", *name, "--yes", "--output", "json")
    assert (deleted.code, deleted.json["deleted"]) == (0, True), deleted.err
    gone = command("delete", *name, "--yes")
    assert (gone.code, gone.err.count("\n")) == (1, 1)


def test_load_tests_on_aws_say_that_there_is_no_cloudformation(command):
    listed = command("loadtest", "list")
    assert listed.code == 1
    assert "this endpoint has no CloudFormation" in listed.err


def test_what_only_stacks_have_is_said_in_one_line(command, unique_name):
    for words in (("deploy", "--plan"), ("audit", "replay"), ("loadtest", "deploy")):
        ran = command(*words, "--name", unique_name)
        assert "this endpoint has no CloudFormation" in ran.error(1), words


def test_a_server_that_is_down_does_not_count_as_one_without_cloudformation(unique_name):
    """Otherwise the table of a stack would be created or deleted by itself."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for act in (lambda it: it.deploy(StackOptions()), lambda it: it.delete()):
        deployment = Deployment(unique_name, "us-east-1", url)
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            act(deployment)
        deployment.close()


def test_the_hosts_of_every_partition_are_those_of_aws():
    loader = create_loader()
    partitions = loader.load_data("partitions")["partitions"]
    assert len(partitions) >= 8
    for partition in partitions:
        outputs = partition["outputs"]
        for suffix in (outputs["dnsSuffix"], outputs["dualStackDnsSuffix"]):
            for host in (f"dynamodb.some-region-1.{suffix}", f"vpce-1.dynamodb.r.vpce.{suffix}"):
                assert Control(endpoint_url=f"https://{host}").serves_stacks(), host
    assert not Control(endpoint_url=shared_endpoint()).serves_stacks()


def test_a_repository_creates_the_table_alone(monkeypatch, unique_name):
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", shared_endpoint())
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with SyncRepository.open(stack=unique_name) as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 5)])
        assert repository.get_system_defaults()[0] == [Limit.per_minute("rpm", 5)]
        repository.delete_table()


def test_a_named_cloudformation_is_asked(monkeypatch, control_plane, unique_name):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", control_plane.url)
    assert Control().serves_stacks() is False
    for service in ("CLOUDFORMATION", "LAMBDA", "S3"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", control_plane.url)
    deployment = Deployment(unique_name)
    try:
        assert deployment.deploy(StackOptions()).stack == "created"
        assert deployment.delete().existed
    finally:
        deployment.close()


class LoggingEndpoint(ThreadingHTTPServer):
    """Records the signed region and service of each request, and answers with nonsense."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Logged)
        self.signed_for = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Logged(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/", self.headers["authorization"])
        self.server.signed_for.append(scope.groups())
        self.send_response(200)
        self.send_header("content-length", "8")
        self.end_headers()
        self.wfile.write(b"nonsense")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint():
    with LoggingEndpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


REGIONS = {
    "AWS_REGION": ({"AWS_REGION": "eu-north-1"}, "eu-north-1"),
    "AWS_DEFAULT_REGION": ({"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
    "both": ({"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "us-west-2"}, "eu-north-1"),
    "profile": ({}, "ap-south-1"),
}


@pytest.mark.parametrize("case", REGIONS)
def test_both_planes_go_to_the_same_region(monkeypatch, tmp_path, endpoint, case):
    """The order is: argument, AWS_REGION, AWS_DEFAULT_REGION, profile."""
    variables, expected = REGIONS[case]
    config = tmp_path / "config"
    config.write_text("[default]\nregion = ap-south-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for region in (None, "sa-east-1"):
        _ask_both_planes(region)
    assert endpoint.signed_for == [
        (expected, "dynamodb"),
        (expected, "cloudformation"),
        ("sa-east-1", "dynamodb"),
        ("sa-east-1", "cloudformation"),
    ]


def _ask_both_planes(region):
    client = DynamoClient("some-table", region=region)
    with pytest.raises(InfrastructureError):
        client.call("PutItem", {})
    client.close()
    control = Control(region)
    with pytest.raises(InfrastructureError, match="cloudformation"):
        control.call("cloudformation", "describe_stacks")
    control.close()
