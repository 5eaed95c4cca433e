"""Suites of the repository, run on the account through the hop that signs again."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.accept_aws.records import Skip
from tools.accept_aws.run import Run, say
from tools.accept_aws.signing_hop import SigningHop
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter.store_errors import ConditionFailed
from zae_limiter.transport.errors import Refused, TransactionCanceled

ROOT = Path(__file__).parents[2]
CONTRACT = "tests/contract/_async"
CAPACITY = "tests/integration/dynamodb/capacity"
FORMS_MODULE, RECORDER_MODULE = "tests.support.aws_rules.watch", "tests.support.recorded_run"
TEST_TIMEOUT_S = 600
FEWEST_FORMS = 1000  # a recording of all suites has several thousand
MAX_NAMED = 20  # failures in the detail of a step; the log has all
ITEM_REQUESTS = frozenset(
    {
        *("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan"),
        *("BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems"),
    }
)


def contract(run: Run) -> str:
    """The engine keeps the promises of the contract suite."""
    return _pytest(run, "contract.log", CONTRACT, "-k", run.settings.select)


def units(run: Run) -> str:
    """Operations consume the units that the documents say."""
    costs = run.settings.folder / "costs.jsonl"
    costs.unlink(missing_ok=True)
    try:
        return _pytest(run, "units.log", CAPACITY, ZAEL_RECORD_COSTS=str(costs))
    finally:
        run.report.units = read_costs(costs)


def read_costs(costs: Path) -> list[dict[str, Any]]:
    """Return each measured operation once; a difference from the documents beats an agreement."""
    rows: dict[str, dict[str, Any]] = {}
    for line in costs.read_text().splitlines() if costs.exists() else ():
        row = json.loads(line)
        if row["operation"] not in rows or row["documented"] != row["seen"]:
            rows[row["operation"]] = row
    return list(rows.values())


def _pytest(run: Run, log: str, *selected: str, **environment: str) -> str:
    """Run tests through the hop, show their progress, and return their summary."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"),
        *("-n", str(run.settings.workers), "--timeout", str(TEST_TIMEOUT_S), "-rfE", *selected),
    ]
    lines: list[str] = []
    with _hop(run) as hop:
        environment |= {
            "ZAEL_TEST_ENDPOINT": hop.url,
            "ZAEL_TEST_MOMENT_S": str(run.settings.moment_s),
        }
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**_own_environment(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    lines.append(line)
                    if line.endswith("%]\n"):
                        say(f"    {line.rstrip()}")
            except BaseException:  # an interrupt: tests must not go on while tables are deleted
                child.terminate()
                raise
            finally:
                (run.settings.folder / log).write_text("".join(lines))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", "".join(lines), re.MULTILINE)
    summary = lines[-1].strip() if lines else "pytest said nothing"
    if child.returncode:
        named = "\n".join(failed[:MAX_NAMED])
        raise AssertionError(f"{summary}; see {log}\n{named}")
    return summary


def _own_environment() -> dict[str, str]:
    """Return the environment without credentials and settings, which the suites set themselves."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "ZAEL_", "PYTEST"))
    }


def _hop(run: Run) -> SigningHop:
    return SigningHop(
        _dynamodb_endpoint(run),
        run.settings.region,
        run.credentials(),
        run.created_tables,
        settle_s=run.settings.settle_s,
    )


def _dynamodb_endpoint(run: Run) -> str:
    """Return the endpoint of DynamoDB in the region, as botocore knows it."""
    if run.settings.endpoint_url is not None:
        return run.settings.endpoint_url
    from botocore.session import Session

    client = Session().create_client("dynamodb", region_name=run.settings.region)
    return str(client.meta.endpoint_url)


# --- recorded forms


def replay_forms(run: Run) -> str:
    """AWS takes the forms of all requests that the suites send.

    The forms have keys of no item, so most conditions fail; AWS checks the expressions before.
    """
    forms = [form for form in _forms(run) if form.operation in ITEM_REQUESTS]
    is_whole = run.settings.forms is not None or len(forms) >= FEWEST_FORMS
    assert forms, "no form was recorded"
    assert is_whole, f"{len(forms)} forms were recorded, which cannot be all"
    table = forms_table(run)
    with run.created_tables.open("a") as file:
        file.write(table + "\n")
    client = DynamoClient(
        table,
        region=run.settings.region,
        endpoint_url=run.settings.endpoint_url,
        request_timeout=30,
    )
    wrong: list[str] = []
    try:
        make_table(client, stream=False)
        for number, form in enumerate(forms, 1):
            wrong += _refusals(client, number, form)
            if number % 500 == 0:
                say(f"    {number} of {len(forms)} forms")
    finally:
        remove_table(client)
        client.close()
    (run.settings.folder / "forms.log").write_text("\n".join(wrong))
    assert not wrong, f"{len(wrong)} of {len(forms)} were refused; see forms.log\n{wrong[0]}"
    return f"{len(forms)} forms were taken"


def forms_table(run: Run) -> str:
    return f"{run.name}-forms"


def _forms(run: Run) -> list[Any]:
    """Return the recorded forms: those of a folder, or of a run on a local server now."""
    try:
        watch = importlib.import_module(FORMS_MODULE)
        recorder = importlib.import_module(RECORDER_MODULE)
    except ModuleNotFoundError as missing:
        raise Skip(f"this tree has no recorder of forms ({missing.name})") from missing
    folder = run.settings.forms
    if folder is None:
        say("    the suites are recorded on a local server, which takes some minutes")
        folder = recorder.recorded_run(run.settings.folder).folder
    return list(watch.read_forms(folder))


def _refusals(client: DynamoClient, number: int, form: Any) -> list[str]:
    """Send a form with keys of its own; return the reason if it is called invalid."""
    text = form.text.replace('"key-', f'"{number}-key-')
    body = on_table(json.loads(text), client.table)
    try:
        client.call(form.operation, body)
    except ConditionFailed:
        pass
    except (Refused, TransactionCanceled) as refused:
        if "Validation" in str(refused):  # an exception, or a reason of a transaction
            return [f"{form.operation}: {refused}: {body}"]
    return []


def on_table(body: dict[str, Any], table: str) -> dict[str, Any]:
    """Return a form's request to another table; the client adds the name of a single request."""
    body = {part: content for part, content in body.items() if part != "TableName"}
    for action in body.get("TransactItems", ()):
        for part in action.values():
            part["TableName"] = table
    if "RequestItems" in body:
        [requests] = body["RequestItems"].values()
        body["RequestItems"] = {table: requests}
    return body
