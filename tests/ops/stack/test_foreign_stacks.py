"""A stack of the same name whose table another implementation has written."""

import pytest

from tests.support.dynamodb import other_forms as forms
from zae_limiter import ForeignTableError, SyncRepository
from zae_limiter.items.version_record import SCHEMA_VERSION
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._sync.infra.stack_manager import SyncStackManager

COMMANDS = [
    ("deploy",),
    ("deploy", "--plan"),
    ("check",),
    ("upgrade", "--dry-run"),
    ("upgrade", "--yes"),
    ("status",),
    ("delete", "--yes"),
    ("entity", "list"),
]


@pytest.fixture
def foreign_stack(place):
    """A stack with nothing but a table, which holds items of the project reference."""
    name, _, endpoint_url = place
    keys = [
        {"AttributeName": "PK", "KeyType": "HASH"},
        {"AttributeName": "SK", "KeyType": "RANGE"},
    ]
    properties = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": keys,
        "AttributeDefinitions": [
            {"AttributeName": key["AttributeName"], "AttributeType": "S"} for key in keys
        ],
    }
    body = {
        "Parameters": {},
        "Resources": {"Table": {"Type": "AWS::DynamoDB::Table", "Properties": properties}},
    }
    manager = SyncStackManager(*place, body=body)
    manager.deploy(StackOptions())
    items = [*forms.namespaces(), forms.version(), forms.bucket("user-1", "gpt-4")]
    with forms.filled(name, items, endpoint_url):
        yield manager
    manager.close()


def test_no_command_changes_a_foreign_stack(foreign_stack, command, place):
    name, _, endpoint_url = place
    before = forms.content(name, endpoint_url), foreign_stack.describe()
    for words in COMMANDS:
        line = command(*words).error(1)
        assert f"table {name!r} is not one of this version of zae-limiter" in line, words
        assert "nothing was changed; choose another stack" in line
        assert (forms.content(name, endpoint_url), foreign_stack.describe()) == before, words


def test_nor_does_an_opening(foreign_stack, opening):
    with pytest.raises(ForeignTableError):
        SyncRepository.open(**opening)


def test_an_upgrade_writes_the_record_of_a_stack_of_other_tools(deployment, command):
    deployment.manager.deploy(StackOptions(usage_retention_days=30))
    assert "no code yet" in command("check").err
    assert deployment.version_record() is None
    assert command("upgrade", "--yes").code == 0
    record = deployment.version_record()
    assert (record["schema_version"], record["usage_retention_days"]) == (SCHEMA_VERSION, 30)
