"""AWS's own engine takes the requests of all suites, and runs the contract suite.

The engine is DynamoDB Local of 2020: see ``docs/contributing/other-servers.md``, which lists the
promises that it cannot keep.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.aws_rules import watch
from tests.support.aws_rules.forms import TABLE, Form, form_of
from tests.support.dynamodb.aws_engine import MAX_ACTIONS, AwsEngine, NewerFeatures, obstacle
from tests.support.dynamodb.bridge import WithoutExpiry
from tests.support.ministack import Ministack
from tests.support.recorded_run import AT_MOST_S, recorded_run
from tests.unit.dynamodb.test_longest_writes import KINDS, SETS
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table
from zae_limiter.store_errors import ConditionFailed
from zae_limiter.transport.errors import Refused, TransactionCanceled

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/contributing/other-servers.md"
RENAMES = "tests/integration/dynamodb/hours/test_renamed_limits.py"
FEWEST_FORMS = 1000  # a run that has recorded fewer has not run the suites
ITEM_REQUESTS = frozenset(
    {
        *("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan"),
        *("BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems"),
    }
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine():
    """AWS's engine as it is."""
    if reason := obstacle():
        pytest.skip(reason)
    with AwsEngine() as engine:
        yield engine


@pytest.fixture(scope="module")
def newer(engine):
    """The URL of the engine with the features that it lacks."""
    with NewerFeatures(engine.url) as proxy:
        yield proxy.url


@pytest.fixture
def client(newer, credentials):
    """A client of an empty table that has the limiter's indexes."""
    client = DynamoClient(TABLE, endpoint_url=newer, request_timeout=30)
    make_table(client, stream=False)
    yield client
    client.call("DeleteTable", {})
    client.close()


def refusals(client, forms):
    """Return the forms that the engine calls invalid, with its words.

    Each form gets keys of its own, of no item, so most conditions fail; the engine checks the
    expressions before. Transactions are sent in parts that the engine takes.
    """
    found = []
    numbered = (
        Form(form.operation, form.text.replace('"key-', f'"{number}-key-'))
        for number, form in enumerate(forms)
    )
    for operation, body in (part for form in numbered for part in _parts(form)):
        try:
            client.call(operation, body)
        except ConditionFailed:
            continue
        except (Refused, TransactionCanceled) as refused:
            if "Validation" in str(refused):  # an exception, or a reason of a transaction
                found.append(f"{operation}: {refused}: {body}")
    return found


def _parts(form):
    body = {name: value for name, value in form.body.items() if name != "TableName"}
    actions = body.get("TransactItems")
    if actions is None:
        yield form.operation, body
        return
    for action in actions:
        next(iter(action.values()))["TableName"] = TABLE
    for start in range(0, len(actions), MAX_ACTIONS):
        yield form.operation, {**body, "TransactItems": actions[start : start + MAX_ACTIONS]}


@pytest.mark.timeout(AT_MOST_S + 1200)
def test_the_engine_takes_the_requests_of_all_suites(client, tmp_path_factory, capsys):
    with capsys.disabled():
        run = recorded_run(tmp_path_factory.getbasetemp())
        forms = [form for form in watch.read_forms(run.folder) if form.operation in ITEM_REQUESTS]
        sys.stderr.write(f"{len(forms)} forms are replayed\n")
    assert len(forms) >= FEWEST_FORMS, run.said[-2000:]
    assert refusals(client, forms) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_engine_takes_the_longest_writes(client, kind):
    bodies = [{"TransactItems": [action]} for name in SETS for action in kind(name)]
    forms = {form_of("TransactWriteItems", body) for body in bodies}
    assert forms
    assert refusals(client, sorted(forms)) == []


@pytest.mark.parametrize(
    ("expression", "condition", "words"),
    [
        ("SET #0=:0", " AND ".join(["#0=:0"] * 151), "too many operators"),
        ("SET #0=:0", "#0=:0" + " " * 4096, "exceeded the maximum allowed size"),
        ("SET status=:0 REMOVE #0", "#0=:0", "reserved keyword"),
        ("SET #0=:0 REMOVE #0", "#0=:0", "overlap"),
    ],
    ids=["operators", "bytes", "reserved word", "overlap"],
)
def test_a_planted_violation_is_refused(client, expression, condition, words):
    body = {
        "Key": {"PK": {"S": "a"}, "SK": {"S": "b"}},
        "UpdateExpression": expression,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#0": "a"},
        "ExpressionAttributeValues": {":0": {"N": "1"}},
    }
    [found] = refusals(client, [form_of("UpdateItem", body)])
    assert words in found
    assert watch.take_violations()


def test_an_attribute_that_is_missing_differs_from_every_value(client):
    """Ids of earlier writes may be missing: their conditions must hold then."""
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    client.call("PutItem", {"Item": {**key, "op": {"S": "before"}}})
    body = {
        "Key": key,
        "UpdateExpression": "SET op = :id, w1 = if_not_exists(op, :id)",
        "ConditionExpression": "op <> :id AND w1 <> :id",
        "ExpressionAttributeValues": {":id": {"S": "own"}},
    }
    answer = client.call("UpdateItem", {**body, "ReturnValues": "UPDATED_OLD"})
    assert answer["Attributes"] == {"op": {"S": "before"}}
    with pytest.raises(ConditionFailed):
        client.call("UpdateItem", body)


@pytest.mark.timeout(900)
def test_renamed_limits_outlive_their_hours_on_the_engine(newer):
    assert failures(newer, RENAMES) == set()


@pytest.mark.timeout(3600)
def test_the_engine_keeps_every_promise_that_is_not_listed(newer):
    assert failures(newer, "tests/contract/_async", "-k", "dynamo") <= listed("DynamoDB Local")


@pytest.mark.timeout(3600)
def test_ministack_keeps_every_promise():
    with Ministack() as server, WithoutExpiry(server.url) as proxy:
        assert failures(proxy.url, "tests/contract/_async", "-k", "dynamo") == set()


def test_every_listed_promise_exists():
    """A renamed test leaves the list."""
    names = "\n".join(path.read_text() for path in (ROOT / "contract").rglob("_async/*.py"))
    assert listed("DynamoDB Local")
    for name in listed("DynamoDB Local"):
        assert f"def {name}(" in names, name


def failures(endpoint, *selected):
    """Run tests on another server, and return the names of those that fail there, without ids."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"),
            *("-m", "not slow", "--timeout", "600", "--tb", "short", "-rfE", *selected),
        ],
        cwd=ROOT,
        env={**_environment(), "ZAEL_TEST_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert " passed" in done.stdout, done.stdout[-3000:]
    sys.stderr.write(done.stdout[-3000:])
    return set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", done.stdout, re.MULTILINE))


def _environment():
    return {name: value for name, value in os.environ.items() if "PYTEST" not in name}


def listed(server):
    """Return the names of tests in the section of a server on the page for contributors."""
    section = re.search(
        rf"^## {server}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return set(re.findall(r"`(test_\w+)`", section[1]))
