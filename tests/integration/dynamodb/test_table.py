"""Making the table on a real server."""

import asyncio
import threading

import pytest

from zae_limiter import (
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    Repository,
    SyncRepository,
)
from zae_limiter.dynamodb.table import INDEXES


@pytest.fixture
def settings(endpoint, unique_name, boto):
    yield {"stack": unique_name, "endpoint_url": endpoint}
    client = boto(endpoint)
    if unique_name in client.list_tables()["TableNames"]:
        client.delete_table(TableName=unique_name)


@pytest.fixture
def described(boto, endpoint, unique_name):
    """What the server says about the table."""

    def ask():
        return boto(endpoint).describe_table(TableName=unique_name)["Table"]

    return ask


def test_a_table_that_is_missing_is_made(settings, described):
    SyncRepository.open(**settings, provision="table").close()
    table = described()
    assert table["TableStatus"] == "ACTIVE"
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    found = {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in table["GlobalSecondaryIndexes"]
    }
    assert found == {index.name: index.projection for index in INDEXES}


def test_items_expire(settings, boto, endpoint, unique_name):
    SyncRepository.open(**settings, provision="table").close()
    found = boto(endpoint).describe_time_to_live(TableName=unique_name)
    assert found["TimeToLiveDescription"]["AttributeName"] == "ttl"
    assert found["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED"


def test_what_is_in_a_table_stays_when_it_is_opened_again(settings):
    with SyncRepository.open(**settings, provision="table") as repository:
        repository.create_entity("user")
        first = repository.namespace_id
    with SyncRepository.open(**settings, provision="table") as repository:
        assert repository.namespace_id == first
        assert repository.get_entity("user") is not None


def test_many_may_make_it_at_once(settings):
    ids, errors = [], []
    ready = threading.Barrier(6)

    def make():
        try:
            ready.wait()
            with SyncRepository.open(**settings, provision="table") as repository:
                ids.append(repository.namespace_id)
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(ids)) == 1


async def test_tasks_may_make_it_at_once(settings):
    async def make():
        async with await Repository.open(**settings, provision="table") as repository:
            return repository.namespace_id

    assert len(set(await asyncio.gather(*(make() for _ in range(6))))) == 1


def test_a_making_that_was_interrupted_is_finished_by_the_next(
    settings, boto, endpoint, proxy, unique_name
):
    through = settings | {"endpoint_url": proxy.url, "request_timeout": 0.5}
    with (
        proxy.fault("deny", operation="UpdateTimeToLive"),
        proxy.fault("close", operation="PutItem"),
        pytest.raises(RateLimiterUnavailable),
    ):
        SyncRepository.open(**through, provision="table")
    SyncRepository.open(**settings, provision="table").close()
    found = boto(endpoint).describe_time_to_live(TableName=unique_name)
    assert found["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED"


@pytest.mark.parametrize("code", ["UnknownOperationException", "ValidationException"])
def test_a_server_without_time_to_live_will_do(settings, proxy, caplog, code):
    through = settings | {"endpoint_url": proxy.url}
    with proxy.fault("throttle", operation="UpdateTimeToLive", code=code) as fault:
        SyncRepository.open(**through, provision="table").close()
    assert fault.used
    assert "TTL could not be enabled" in caplog.text


def test_an_answer_to_the_making_that_is_lost_does_not_matter(settings, proxy):
    through = settings | {"endpoint_url": proxy.url}
    with proxy.fault("lose_answer", operation="CreateTable", times=1) as fault:
        SyncRepository.open(**through, provision="table").close()
    assert fault.used == 1


def test_a_deleted_table_is_gone_and_can_be_made_again(settings, boto, endpoint, unique_name):
    with SyncRepository.open(**settings, provision="table") as repository:
        repository.create_entity("user")
        repository.delete_table()
        assert unique_name not in boto(endpoint).list_tables()["TableNames"]
        with pytest.raises(InfrastructureNotFoundError):
            repository.get_entity("user")
        repository.delete_table()
    with SyncRepository.open(**settings, provision="table") as repository:
        assert repository.get_entity("user") is None
