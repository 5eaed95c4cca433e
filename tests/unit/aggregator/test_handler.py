"""The entry point: its environment and its answers."""

import json
from types import SimpleNamespace

import pytest

from tests.unit.aggregator.test_processor import turns
from zae_limiter_aggregator import handler as function
from zae_limiter_aggregator.handler import close, handler


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    settings = {
        "TABLE_NAME": "my-table",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nothing listens there
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield
    close()


def context(left_ms):
    return SimpleNamespace(aws_request_id="r-1", get_remaining_time_in_millis=lambda: left_ms)


def test_an_empty_batch_has_no_failures(capsys):
    assert handler({"Records": []}) == {"batchItemFailures": []}
    assert handler({}, context(60_000)) == {"batchItemFailures": []}
    first, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["Table"], first["Records"], first["Lag"]) == ("my-table", 0, 0)


def test_a_store_that_is_away_fails_all_hours(capsys):
    answer = handler({"Records": turns(2)}, context(60_000))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "100"}, {"itemIdentifier": "101"}]}
    *errors, metrics = map(json.loads, capsys.readouterr().out.splitlines())
    assert {line["request_id"] for line in errors} == {"r-1"}
    assert (metrics["Failures"], metrics["Hours"]) == (2, 0)


def test_the_package_has_the_documented_names():
    import zae_limiter_aggregator

    assert function is handler
    for name in zae_limiter_aggregator.__all__:
        assert getattr(zae_limiter_aggregator, name)
    assert set(zae_limiter_aggregator.__all__) == {
        "ConsumptionDelta",
        "ParsedBucketLimit",
        "ParsedBucketRecord",
        "ProcessResult",
        "handler",
    }


def test_without_a_table_the_function_fails(monkeypatch):
    monkeypatch.delenv("TABLE_NAME")
    with pytest.raises(KeyError):
        handler({"Records": turns(1)})
