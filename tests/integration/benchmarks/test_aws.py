"""``python -m benchmarks --aws STACK``, on the local server by the endpoint variable of AWS."""

import asyncio
import io

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import aws
from tests.support.dynamodb import DynamoServer
from zae_limiter import SyncRepository

STACK = "my-app"


@pytest.fixture(scope="module")
def server():
    with DynamoServer() as server:
        SyncRepository.open(stack=STACK, endpoint_url=server.url, provision="table").close()
        yield server


@pytest.fixture(autouse=True)
def account(server, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": server.url,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(server):
    with SyncRepository.open(stack=STACK, endpoint_url=server.url, provision="never") as store:
        yield store


def names(store):
    found = [*store.list_namespaces(), *store.list_orphan_namespaces()]
    return [namespace.name for namespace in found]


def console():
    return Console(file=io.StringIO(), width=130)


@pytest.mark.slow
def test_both_tables_are_measured_and_nothing_is_left(store):
    stack = aws.Stack.found(STACK, None)
    assert stack.region == "eu-west-1"
    latencies, capacities = asyncio.run(aws.measure(stack, 2, tasks=3))
    assert len(latencies) == len(aws.OPERATIONS) + 2
    assert all(0 < line.p50_ms <= line.p95_ms <= line.p99_ms for line in latencies)
    assert not [row for row in capacities if not row.is_as_documented]
    assert names(store) == ["default"]
    shown = console()
    aws.print_tables(shown, latencies, capacities)
    text = shown.file.getvalue()
    assert "acquire, cascading" in text
    assert "2 / 2 / 0" in text


def test_it_says_the_cost_and_writes_nothing_unless_that_is_confirmed(store, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # a pipe is not asked
    shown = console()
    stack = aws.Stack.found(STACK, "us-east-1")
    assert aws.main(stack, calls=200, is_confirmed=False, console=shown) == 2
    said = " ".join(shown.file.getvalue().split())
    assert "at most 88,412 write and 87,112 read units, $0.07 on demand" in said
    assert "nothing was written" in said
    assert names(store) == ["default"]


def test_a_stack_that_is_not_there_is_not_deployed():
    shown = console()
    stack = aws.Stack.found("not-there", None)
    assert aws.main(stack, calls=1, is_confirmed=True, console=shown) == 1
    assert "no infrastructure named 'not-there'" in shown.file.getvalue()


@pytest.mark.parametrize("calls", ["0", "-1", "many"])
def test_bad_counts_are_refused(calls, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--aws", STACK, "--calls", calls])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "--calls" in capsys.readouterr().err


def test_without_credentials_it_says_so(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match="no AWS credentials"):
        aws.Stack.found(STACK, None)
