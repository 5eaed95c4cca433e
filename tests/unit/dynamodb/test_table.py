"""The table as it is asked for."""

import pytest

from zae_limiter import InvalidNameError
from zae_limiter.dynamodb.table import (
    INDEXES,
    create_request,
    new_version_record,
    table_name,
    ttl_request,
)
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.version_record import SCHEMA_VERSION, check_version_record


def test_the_table_is_called_like_its_stack():
    assert table_name("my-app") == "my-app"
    with pytest.raises(InvalidNameError):
        table_name("my app")


def test_every_key_is_defined_once_as_text():
    request = create_request("my-app")
    defined = {
        each["AttributeName"]: each["AttributeType"] for each in request["AttributeDefinitions"]
    }
    used = [
        key["AttributeName"]
        for schema in (
            request["KeySchema"],
            *(index["KeySchema"] for index in request["GlobalSecondaryIndexes"]),
        )
        for key in schema
    ]
    assert sorted(defined) == sorted(used)
    assert set(defined.values()) == {"S"}


def test_capacity_is_paid_for_by_use():
    assert create_request("my-app")["BillingMode"] == "PAY_PER_REQUEST"


def test_indexes_that_hold_buckets_project_no_attribute_that_an_acquire_changes():
    assert {index.name: index.projection for index in INDEXES} == {
        "GSI1": "ALL",
        "GSI2": "KEYS_ONLY",
        "GSI3": "KEYS_ONLY",
        "GSI4": "KEYS_ONLY",
    }


def test_the_stream_shows_items_before_and_after():
    assert create_request("my-app")["StreamSpecification"] == {
        "StreamEnabled": True,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }


def test_items_expire_by_the_attribute_ttl():
    assert ttl_request("my-app")["TimeToLiveSpecification"] == {
        "Enabled": True,
        "AttributeName": "ttl",
    }


def test_a_table_of_a_newer_schema_is_refused():
    check_version_record(new_version_record(), "my-app")
    check_version_record({}, "my-app")
    with pytest.raises(IncompatibleSchemaError, match="my-app"):
        check_version_record({"schema_version": SCHEMA_VERSION + 1}, "my-app")
    with pytest.raises(IncompatibleSchemaError):
        check_version_record({"schema_version": "two"}, "my-app")


def test_a_table_of_an_older_version_has_to_be_migrated():
    with pytest.raises(IncompatibleSchemaError, match=r"zae-limiter upgrade --name my-app"):
        check_version_record({"schema_version": SCHEMA_VERSION - 1}, "my-app")
