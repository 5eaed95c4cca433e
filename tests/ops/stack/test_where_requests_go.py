"""Where the requests of opening, deploying and every command go, under each AWS configuration.

The table of ``docs/infra/endpoints.md`` says the same for people.
"""

import re
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.logging_endpoint import LoggingEndpoint, make_certificate
from tools.cli_reference import commands
from zae_limiter import Limit, SyncRepository
from zae_limiter_ops.transport.control import Control

PAGE = Path(__file__).parents[3] / "docs/infra/endpoints.md"
FIRST, SECOND, THIRD = "eu-north-1", "us-west-2", "ap-south-1"
AWS, ALL, ITEMS = "AWS", "the endpoint of all services", "the endpoint of DynamoDB"
NOWHERE = "nowhere"


class Case(NamedTuple):
    """Settings, and where requests go: to DynamoDB, to the other services, and to which region."""

    variables: dict[str, str]
    dynamodb: str = AWS
    others: str = AWS
    region: str = FIRST
    profile: str = ""


LOCAL_ITEMS = "[services s]\ndynamodb =\n  endpoint_url = {items}\n"
LOCAL_STACKS = "".join(
    f"{service} =\n  endpoint_url = {{all}}\n"
    for service in (
        *("cloudformation", "lambda", "s3", "sqs", "cloudwatch", "cloudwatch_logs"),
        *("ecr", "codebuild", "ecs", "ec2"),
    )
)
CASES = {
    "AWS_REGION": Case({"AWS_REGION": FIRST}),
    "AWS_DEFAULT_REGION": Case({"AWS_DEFAULT_REGION": SECOND}, region=SECOND),
    "both regions": Case({"AWS_REGION": FIRST, "AWS_DEFAULT_REGION": SECOND}),
    "profile": Case({"AWS_PROFILE": "p"}, region=THIRD, profile="[profile p]\nregion = {region}\n"),
    "profile and AWS_REGION": Case(
        {"AWS_PROFILE": "p", "AWS_REGION": FIRST}, profile="[profile p]\nregion = ap-south-1\n"
    ),
    "services of a profile, DynamoDB alone": Case(
        {"AWS_PROFILE": "p"},
        ITEMS,
        NOWHERE,
        region=THIRD,
        profile="[profile p]\nregion = {region}\nservices = s\n" + LOCAL_ITEMS,
    ),
    "services of a profile, CloudFormation too": Case(
        {"AWS_PROFILE": "p"},
        ITEMS,
        ALL,
        region=THIRD,
        profile="[profile p]\nregion = {region}\nservices = s\n" + LOCAL_ITEMS + LOCAL_STACKS,
    ),
    "AWS_ENDPOINT_URL": Case({"AWS_REGION": FIRST, "AWS_ENDPOINT_URL": "{all}"}, ALL, ALL),
    "AWS_ENDPOINT_URL_DYNAMODB": Case(
        {"AWS_REGION": FIRST, "AWS_ENDPOINT_URL_DYNAMODB": "{items}"}, ITEMS, NOWHERE
    ),
    "both endpoints": Case(
        {
            "AWS_REGION": FIRST,
            "AWS_ENDPOINT_URL": "{all}",
            "AWS_ENDPOINT_URL_DYNAMODB": "{items}",
        },
        ITEMS,
        ALL,
    ),
}
# The fast tests take three cases that differ in every column; the long ones take all of them.
FAST_CASES = {
    *("both regions", "services of a profile, CloudFormation too", "AWS_ENDPOINT_URL_DYNAMODB")
}
ALL_CASES = [
    pytest.param(name, marks=() if name in FAST_CASES else pytest.mark.slow) for name in CASES
]
# Every command that can name an endpoint, after a deployment and in this order; {file} is a
# manifest and {folder} the folder of a locustfile.
COMMANDS = {
    "deploy": "",
    "list": "",
    "status": "",
    "check": "",
    "version": "",
    "system set-defaults": "-l rpm:100",
    "system get-defaults": "",
    "resource set-defaults": "gpt-4 -l rpm:50",
    "resource get-defaults": "gpt-4",
    "resource list": "",
    "entity create": "key-1",
    "entity show": "key-1",
    "entity set-parent": "key-1 team-1 --force",
    "entity set-limits": "key-1 -l rpm:10",
    "entity get-limits": "key-1",
    "entity list": "",
    "entity list-resources": "",
    "explain": "key-1 gpt-4",
    "entity set-mode": "key-1 shadow",
    "resource set-mode": "gpt-4 shadow",
    "bucket pause": "key-1 gpt-4 1",
    "bucket show": "key-1 gpt-4",
    "bucket list": "",
    "bucket top-up": "key-1 gpt-4 --add rpm=1",
    "bucket reset": "key-1 gpt-4 --yes",
    "budget list": "",
    "watch": "--resource gpt-4 --once",
    "usage list": "",
    "usage summary": "",
    "usage top": "--resource gpt-4",
    "audit list": "",
    "audit replay": "--dry-run",
    "demo": "--seconds 0.2 --tenants 1",
    "limits plan": "-f {file}",
    "limits apply": "-f {file} --yes",
    "limits diff": "-f {file}",
    "limits export": "",
    "limits cfn-template": "-f {file}",
    "namespace register": "tenant-a",
    "namespace list": "",
    "namespace show": "tenant-a",
    "namespace delete": "tenant-a --yes",
    "namespace orphans": "",
    "namespace recover": "{namespace_id}",
    "namespace purge": "{namespace_id} --yes",
    "entity delete-limits": "key-1 --yes",
    "entity delete": "key-1 --yes",
    "resource delete-defaults": "gpt-4 --yes",
    "system delete-defaults": "--yes",
    "upgrade": "--yes",
    "loadtest list": "",
    "loadtest run": "-C {folder} --aws",
    "loadtest tune": "-C {folder} --aws",
    "loadtest ui": "",
    "loadtest push": "-C {folder}",
    "loadtest deploy": "-C {folder}",
    "loadtest delete": "--yes",
    "delete": "--yes",
}
# One of each kind, for the fast tests.
MAIN_COMMANDS = (
    *("deploy", "list", "status", "check", "system set-defaults", "limits plan", "audit replay"),
    *("upgrade", "loadtest list", "loadtest push", "delete"),
)
# They look for a load-test stack that is not there yet, and say so.
WITHOUT_LOAD_STACK = {f"loadtest {word}" for word in ("run", "tune", "ui", "push")}
# Without CloudFormation they say what they cannot do.
ABOUT_STACKS = {"audit replay", *(name for name in COMMANDS if name.startswith("loadtest"))}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), FIRST, SECOND, THIRD)


class Places:
    """Logging endpoints: AWS through a proxy that looks inside of TLS, and two of our own."""

    def __init__(self, upstream, certificate):
        self.aws = LoggingEndpoint(upstream, certificate)
        self.all = LoggingEndpoint(upstream)
        self.items = LoggingEndpoint(upstream)

    def take(self):
        """Return (service, place, region) of all requests since the last look."""
        found = set()
        for place, endpoint in ((AWS, self.aws), (ALL, self.all), (ITEMS, self.items)):
            for host, service, region in endpoint.seen:
                if place == AWS:
                    assert f".{region}.amazonaws.com" in host, (host, service, region)
                found.add((service, place, region))
            endpoint.seen.clear()
        return found


@pytest.fixture
def places(control_plane, certificate):
    places = Places(control_plane.url, certificate)
    with places.aws, places.all, places.items:
        yield places


@pytest.fixture(params=ALL_CASES)
def case(request, places, monkeypatch, certificate, tmp_path):
    """One configuration of this process."""
    case = CASES[request.param]
    urls = {"all": places.all.url, "items": places.items.url, "region": case.region}
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value.format_map(urls))
    config = tmp_path / "config"
    config.write_text(case.profile.format_map(urls))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HTTPS_PROXY", places.aws.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    return case


def misdirected(found, case):
    """Return the requests that did not go where the case says."""
    return {
        (service, place, region)
        for service, place, region in found
        if (place, region) != (case.dynamodb if service == "dynamodb" else case.others, case.region)
    }


class Commands:
    """Runs the commands of the list, and notes what went wrong or to a wrong place."""

    def __init__(self, case, places, line, folder, stack):
        self._case, self._places, self._line, self._stack = case, places, line, stack
        (folder / "limits.yaml").write_text("system:\n  limits:\n    rpm: 60\n")
        (folder / "load").mkdir()
        (folder / "load/locustfile.py").write_text("x = 1\n")
        self._values = {"file": folder / "limits.yaml", "folder": folder / "load"}
        self.services, self.problems = {}, []

    def run(self, name):
        if name == "namespace recover":
            self._values["namespace_id"] = self._deleted_namespace()
        elif name == "namespace purge":  # it was recovered
            self._line("namespace", "delete", "tenant-a", "--yes", "--name", self._stack)
        which = () if name in ("list", "loadtest list") else ("--name", self._stack)
        ran = self._line(*name.split(), *COMMANDS[name].format_map(self._values).split(), *which)
        found = self._places.take()
        self.services[name] = {service for service, _, _ in found}
        self.problems += [(name, request) for request in misdirected(found, self._case)]
        is_bare = self._case.others == NOWHERE
        fails = name in WITHOUT_LOAD_STACK or (is_bare and name in ABOUT_STACKS)
        if ran.code != fails or (fails and not ran.err.splitlines()[-1].startswith("error: ")):
            self.problems.append((name, ran))

    def _deleted_namespace(self):
        orphans = self._line("namespace", "orphans", "--output", "json", "--name", self._stack)
        return orphans.json["namespaces"][0]["namespace_id"]

    def check(self):
        assert not self.problems, "\n".join(map(str, self.problems))
        assert "dynamodb" in self.services["system set-defaults"]
        has_stacks = self._case.others != NOWHERE
        assert ("cloudformation" in self.services["deploy"]) == has_stacks


@pytest.fixture
def ran(case, places, capsys, tmp_path, unique_name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Commands(case, places, CommandLine(capsys, ""), tmp_path, unique_name)


def test_the_main_commands_go_to_the_configured_places(ran):
    for name in MAIN_COMMANDS:
        ran.run(name)
    ran.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_goes_to_the_configured_places(ran):
    for name in COMMANDS:
        ran.run(name)
    ran.check()


def test_opening_goes_to_the_configured_places(case, places, unique_name):
    with SyncRepository.open(stack=unique_name) as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 5)])
        found = places.take()
        repository.delete_table()
    assert misdirected(found, case) == set()
    services = {service for service, _, _ in found}
    assert services >= {"dynamodb"}
    assert ("cloudformation" in services) == (case.others != NOWHERE)


@pytest.fixture
def local_stacks(places, monkeypatch, certificate, tmp_path):
    """Settings that name endpoints for DynamoDB and CloudFormation, and for no other service."""
    settings = {
        "HTTPS_PROXY": places.aws.url,
        "NO_PROXY": "127.0.0.1",
        "AWS_CA_BUNDLE": str(certificate),
        "AWS_REGION": FIRST,
        "AWS_ENDPOINT_URL_DYNAMODB": places.items.url,
        "AWS_ENDPOINT_URL_CLOUDFORMATION": places.all.url,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "locustfile.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        ("deploy", "AWS_ENDPOINT_URL_LAMBDA"),
        ("status", "AWS_ENDPOINT_URL_CLOUDWATCH"),
        ("loadtest deploy -C .", "AWS_ENDPOINT_URL_EC2"),
    ],
)
def test_beside_a_local_table_no_service_without_an_endpoint_is_asked_at_aws(
    local_stacks, places, capsys, unique_name, words, variable
):
    """Otherwise ``deploy`` would upload code to a function of the same name on AWS."""
    ran = CommandLine(capsys, "")(*words.split(), "--name", unique_name)
    assert AWS not in {place for _, place, _ in places.take()}
    assert ran.code == 1
    assert f"; name one for both: {variable}, or AWS_ENDPOINT_URL for all services" in ran.err


def test_the_log_has_another_name_in_settings_than_its_client(monkeypatch, places):
    for service in ("DYNAMODB", "CLOUDWATCH_LOGS"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", places.all.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    control = Control()
    assert "logGroups" in control.call("logs", "describe_log_groups")
    control.close()
    assert {place for _, place, _ in places.take()} == {ALL}


def test_the_list_names_every_command_with_an_endpoint():
    named = {
        " ".join(path)
        for path, command in commands()
        if not isinstance(command, click.Group)
        and any(parameter.name == "endpoint_url" for parameter in command.params)
    }
    # These two run until they are stopped; they open their store like every other command.
    assert named - {"dashboard", "serve"} == set(COMMANDS)


def test_the_page_says_the_same():
    regions = {FIRST: "`AWS_REGION`", SECOND: "`AWS_DEFAULT_REGION`", THIRD: "the profile"}
    [table] = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    said = {settings.replace("`", ""): cells for settings, *cells in rows[2:]}
    assert said.keys() == CASES.keys()
    for name, (region, dynamodb, others) in said.items():
        case = CASES[name]
        assert region == regions[case.region], name
        assert (dynamodb == "AWS", others == "AWS") == (case.dynamodb == AWS, case.others == AWS)
        assert (others == "never asked") == (case.others == NOWHERE), name
        assert (dynamodb == others) == (case.dynamodb == case.others), name
