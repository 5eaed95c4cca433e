"""What only DynamoDB has: ways to name a table, to create it, and to fail."""

import re
import shlex
import socket
import sys
from contextlib import contextmanager

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.stores import on_dynamodb, sqlite_first
from tests.ops.cli.terminal import only_line, run, run_command
from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.store_url import parse_url

IN_CODE = re.compile(r"provision=|url='|region=|endpoint_url|\(\)|Traceback")
LOOK, CHANGE = ("resource", "list"), ("system", "set-defaults", "-l", "rpm:1")
NO_METADATA = {
    "AWS_EC2_METADATA_DISABLED": "true"
}  # else the SDK asks the metadata service of a cloud machine


def failure(*args, **more):
    """Return the one line that a command fails with."""
    found = run(*args, **more)
    assert (found.returncode, found.stdout) == (1, ""), found
    line = only_line(found.stderr)
    assert line.startswith("error: ")
    given = [str(arg) for arg in args]
    shown = line
    for word in sorted(given, key=len, reverse=True):  # a hint repeats the options
        shown = shown.replace(word, "")
    assert not IN_CODE.search(shown), line
    return line


# --- naming it -------------------------------------------------------------------------------


@on_dynamodb
@pytest.mark.parametrize("way", ["url", "options", "environment", "both"])
def test_a_stack_is_named_in_several_ways(url, way, tmp_path):
    table, endpoint = parse_url(url).place, shared_endpoint()
    args, more = {
        "url": (["--url", url], {}),
        "options": (["-n", table, "--endpoint-url", endpoint, "--region", "eu-west-1"], {}),
        "environment": (["--endpoint-url", endpoint], {"ZAEL_STACK": table}),
        "both": (
            ["--name", table, "--endpoint-url", endpoint],
            {"ZAEL_URL": f"sqlite:///{tmp_path}/gone.db"},
        ),
    }[way]
    found = run("resource", "list", *args, **more)
    assert (found.returncode, found.stderr) == (0, "")
    assert "gpt-4" in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_stack_of_the_environment_counts_after_its_url(tmp_path):
    url = f"sqlite:///{tmp_path}/gone.db"
    assert "no store at" in failure(*LOOK, ZAEL_URL=url, ZAEL_STACK="some-stack")
    line = failure(*LOOK, ZAEL_STACK="some-stack", AWS_ENDPOINT_URL_DYNAMODB=shared_endpoint())
    assert "no store named 'some-stack'" in line


@on_dynamodb
def test_the_versions_name_the_table(cli):
    store = cli("version", "--output", "json").json["store"]
    assert store["engine"] == "dynamodb"
    assert store["place"] == parse_url(cli.url).place
    assert "dynamodb test-" in cli("version").out


# --- making it -------------------------------------------------------------------------------


def test_a_missing_table_is_made_when_that_is_asked_for_and_only_then(unique_name):
    args = ("--name", unique_name, "--endpoint-url", shared_endpoint())
    for command in (LOOK, CHANGE, ("demo", "--seconds", "0.1"), ("namespace", "register", "a")):
        line = failure(*command, *args)
        assert f"no store named {unique_name!r}: there is no such table" in line
        assert (
            "create the table alone: zae-limiter namespace register default --create-table" in line
        )
        assert line.endswith("--url sqlite:///limits.db (or ZAEL_URL)")
    for _ in range(2):
        found = run("namespace", "register", "tenant", "--create-table", *args)
        assert (found.returncode, found.stderr) == (0, "")
    assert "tenant" in run("namespace", "list", *args).stdout
    with SyncRepository.open(url=store_url(unique_name, shared_endpoint())) as repository:
        (event,) = repository.get_audit_events("$NAMESPACE:tenant")
        assert event.principal
        repository.delete_table()


def test_a_table_of_another_program_is_left_alone(unique_name):
    client = DynamoClient(unique_name, endpoint_url=shared_endpoint())
    client.call(
        "CreateTable",
        {
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    args = ("--name", unique_name, "--endpoint-url", shared_endpoint())
    line = failure(*LOOK, *args)
    assert "is not one of this version of zae-limiter: its keys are not the texts PK and SK" in line
    assert line.endswith("; nothing was changed; choose another stack")
    client.call("DeleteTable", {})
    client.close()


# --- not reaching it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        LOOK,
        pytest.param(CHANGE, marks=pytest.mark.slow),
        pytest.param(("demo", "--name", "some-stack"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_without_aws_the_line_names_both_ways_out(args):
    line = failure(*args, **NO_METADATA)
    assert "AWS is not set up here: no region is known; set AWS_REGION and credentials" in line
    assert line.endswith("or work without DynamoDB: --url sqlite:///limits.db (or ZAEL_URL)")
    line = failure(*args, AWS_REGION="eu-west-1", **NO_METADATA)
    assert "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in line
    assert line.endswith("or work without DynamoDB: --url sqlite:///limits.db (or ZAEL_URL)")
    line = failure(*args, AWS_PROFILE="nobody", **NO_METADATA)
    assert "ProfileNotFound" in line
    assert "--url sqlite:///limits.db" in line


def test_a_metadata_service_that_hangs_is_not_waited_for():
    with silence() as endpoint, Stopwatch() as watch:
        line = failure(
            *LOOK,
            AWS_REGION="eu-west-1",
            AWS_EC2_METADATA_SERVICE_ENDPOINT=endpoint,
            AWS_METADATA_SERVICE_TIMEOUT="30",
        )
    assert watch.within(10)  # the service may take 30 s
    assert "AWS credentials were not found in time" in line
    assert line.endswith("--url sqlite:///limits.db (or ZAEL_URL)")


@contextmanager
def silence():
    """Yield the endpoint of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_does_not_answer_is_given_up():
    with silence() as endpoint, Stopwatch() as watch:
        line = failure(*CHANGE, "--name", "some-stack", "--endpoint-url", endpoint)
    assert watch.within(8)
    assert f"no answer from {endpoint}/: it took too long" in line
    assert line.endswith("check --region, --url or --endpoint-url, and that the server is running")


def test_a_server_that_is_not_there_is_named():
    with silence() as gone:
        pass
    with Stopwatch() as watch:
        line = failure(*LOOK, "--name", "some-stack", "--endpoint-url", gone)
    assert watch.within(5)
    assert f"no connection to {gone}/" in line


def test_debugging_shows_where_it_happened():
    found = run(*LOOK, ZAEL_DEBUG=1, **NO_METADATA)
    assert found.returncode == 1
    assert "Traceback" in found.stderr


def test_an_outage_during_a_purge_says_how_far_it_got_and_how_to_go_on(unique_name):
    with temporary_table() as table, Proxy(shared_endpoint()) as proxy:
        url = store_url(table, proxy.url)
        with SyncRepository.open(url=url) as repository:
            repository.register_namespace("tenant")
            tenant = repository.namespace("tenant")
            for number in range(3):
                tenant.create_entity(f"key-{number}")
            namespace_id = repository.delete_namespace("tenant")
        args = ("namespace", "purge", namespace_id, "--yes", "--url", url)
        with proxy.fault("throttle", operation="BatchWriteItem"):
            line = failure(*args)
        assert "after at least 0 rows were removed for good" in line
        purge = f"remove the rest: zae-limiter namespace purge {namespace_id} --url"
        assert line.endswith(f"{purge} {shlex.quote(url)}")
        assert "6 rows removed" in run(*args).stdout


# --- what it costs to look -------------------------------------------------------------------

MODULES = """
import sys
from zae_limiter_ops.cli import main
for args in {commands}:
    sys.argv = ['zae-limiter', *args]
    code = main()
    heavy = ('aiohttp', 'aiobotocore', 'boto3', 'botocore', 'urllib3')
    found = [name for name in heavy if name in sys.modules]
    if code or found:
        sys.exit(f"{{args}}: {{code}} {{found}}")
"""


@sqlite_first
def test_no_aws_library_is_imported_unless_something_has_to_be_asked_of_it(url):
    commands = [
        ["explain", "key-7", "gpt-4"],
        ["entity", "show", "key-7"],
        ["bucket", "reset", "key-7", "gpt-4", "--yes"],
        ["audit", "list"],
        ["usage", "list", "-r", "gpt-4"],
        ["demo", "--seconds", "0.1", "--tenants", "1"],
    ]
    code = MODULES.format(commands=[[*args, "--url", url] for args in commands])
    found = run_command(sys.executable, "-c", code)
    assert found.returncode == 0, found.stderr
