"""The proxy that other tests trust: what it counts, delays and breaks."""

import asyncio
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

import botocore.exceptions
import pytest
from zae_limiter_contract.stopwatch import Stopwatch

NOTHING_HEARD = (botocore.exceptions.HTTPClientError, botocore.exceptions.ChecksumError)


class Counter:
    """A number in a table, counted up through a proxy and read past it."""

    def __init__(self, table, through, past):
        self._table, self._through, self._past = table, through, past

    def add(self, pk="a", **more):
        return self._through.update_item(
            TableName=self._table,
            Key={"PK": {"S": pk}},
            UpdateExpression="ADD v :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
            **more,
        )

    def get(self, pk="a"):
        return self._through.get_item(TableName=self._table, Key={"PK": {"S": pk}})

    def value(self, pk="a"):
        found = self._past.get_item(
            TableName=self._table, Key={"PK": {"S": pk}}, ConsistentRead=True
        )
        return int(found["Item"]["v"]["N"]) if "Item" in found else 0


@pytest.fixture
def counter(endpoint, proxy, table, boto):
    return Counter(table, boto(proxy.url), boto(endpoint))


def code(caught):
    return caught.value.response["Error"]["Code"]


def eventually(happened, seconds=5.0):
    """Wait for what the proxy does in a thread of its own."""
    give_up_at = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


# --- counting


def test_calls_are_counted_by_operation(proxy, counter):
    with proxy.measure() as seen:
        counter.add()
        counter.add()
        counter.get()
    counter.add()
    assert seen.calls == 3
    assert seen.operations == {"UpdateItem": 2, "GetItem": 1}
    assert [each.status for each in seen.requests] == [200] * 3
    assert seen.connections == 1


def test_the_store_says_what_it_consumed_indexes_included(proxy, counter, table, boto):
    client = boto(proxy.url)
    item = {"PK": {"S": "b"}, "G": {"S": "g"}}
    with proxy.measure() as one:
        counter.add()
    with proxy.measure() as indexed:
        client.put_item(TableName=table, Item=item)
    with proxy.measure() as transaction:
        client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": item}}])
    with proxy.measure() as batch:
        client.batch_get_item(RequestItems={table: {"Keys": [{"PK": {"S": "b"}}]}})
    with proxy.measure() as read:
        client.get_item(TableName=table, Key={"PK": {"S": "b"}}, ConsistentRead=True)
    assert (one.wcu, one.rcu) == (1, 0)
    assert (indexed.wcu, indexed.rcu) == (2, 0)
    assert (transaction.wcu, transaction.rcu) == (2, 0)
    assert (batch.wcu, batch.rcu) == (0, 0.5)
    assert (read.wcu, read.rcu) == (0, 1)


def test_a_client_that_asks_for_less_is_measured_all_the_same(proxy, counter):
    with proxy.measure() as seen:
        counter.add(ReturnConsumedCapacity="NONE")
    assert seen.wcu == 1
    assert seen.requests[0].body["ReturnConsumedCapacity"] == "NONE"


def test_requests_are_recorded_as_they_were_written(proxy, counter):
    with proxy.measure() as seen:
        counter.add(ReturnValues="ALL_NEW")
    (request,) = seen.of("UpdateItem")
    assert request.body["Key"] == {"PK": {"S": "a"}}
    assert request.answer["Attributes"]["v"] == {"N": "1"}
    assert request.started <= request.ended <= time.monotonic()


def test_failed_conditions_are_told_from_writes(proxy, counter):
    with proxy.measure() as seen, pytest.raises(botocore.exceptions.ClientError):
        counter.add(ConditionExpression="attribute_exists(PK)")
    assert (seen.calls, seen.refused, seen.wcu) == (1, 1, 0)
    assert seen.requests[0].status == 400


def test_overlap_is_the_most_that_was_under_way_at_once(proxy, counter):
    with proxy.measure() as one_by_one:
        for _ in range(3):
            counter.add()
    proxy.link.answer_ms = 400
    with proxy.measure() as together, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: counter.add(), range(4)))
    assert one_by_one.overlap == 1
    assert together.overlap == 4
    assert together.connections == 4


def test_two_measurements_do_not_disturb_each_other(proxy, counter):
    with proxy.measure() as outer:
        counter.add()
        with proxy.measure() as inner:
            counter.add()
        counter.add()
    assert (outer.calls, inner.calls) == (3, 1)


def test_many_connections_are_served_at_once(proxy, table):
    host, port = proxy.url.removeprefix("http://").split(":")

    async def work():
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(5):
            writer.write(plain_request(table))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(re.search(rb"content-length: (\d+)", head)[1])
            last = json.loads(await reader.readexactly(length))
        writer.close()
        await writer.wait_closed()
        return int(last["Attributes"]["v"]["N"])

    async def run():
        return max(await asyncio.gather(*(work() for _ in range(200))))

    with proxy.measure() as seen:
        assert asyncio.run(run()) == 1000
    assert (seen.calls, seen.wcu, seen.connections) == (1000, 1000, 200)


def plain_request(table):
    """Counts up; signed by nobody, which a server for tests does not mind."""
    body = json.dumps(
        {
            "TableName": table,
            "Key": {"PK": {"S": "a"}},
            "UpdateExpression": "ADD v :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "UPDATED_NEW",
        }
    )
    scope = "A/20260101/us-east-1/dynamodb/aws4_request"
    lines = (
        "POST / HTTP/1.1",
        "Host: localhost",
        "X-Amz-Target: DynamoDB_20120810.UpdateItem",
        "Content-Type: application/x-amz-json-1.0",
        "X-Amz-Date: 20260101T000000Z",
        f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=00",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", body)).encode()


# --- the line


def test_latency_is_added_each_way(proxy, counter):
    counter.add()
    proxy.link.request_ms, proxy.link.answer_ms = 40, 60
    with Stopwatch() as watch:
        counter.add()
    assert watch.seconds >= 0.1
    assert watch.within(0.1)


def test_jitter_makes_latency_uneven(proxy, counter):
    proxy.link.jitter_ms = 20
    with proxy.measure() as seen:
        for _ in range(20):
            counter.add()
    took = [each.ended - each.started for each in seen.requests]
    assert max(took) - min(took) > 0.005


def test_the_stores_clock_can_be_off(proxy, counter):
    proxy.link.date_offset_s = 300
    assert 298 <= _ahead_s(counter.add()) <= 301
    with proxy.fault("throttle"), pytest.raises(botocore.exceptions.ClientError) as caught:
        counter.add()
    assert 298 <= _ahead_s(caught.value.response) <= 301


def _ahead_s(answer):
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    return parsedate_to_datetime(date).timestamp() - time.time()


def test_what_was_sent_during_a_fault_meets_it_although_nobody_waits_for_it(proxy):
    """A client that gives up leaves a message that must not reach the store after the outage."""
    with proxy.fault("throttle") as fault, socket.create_connection(address(proxy)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    assert fault.used == 1


def address(proxy):
    host, _, port = proxy.url.rpartition("/")[2].partition(":")
    return host, int(port)


# --- faults


@pytest.mark.parametrize(
    ("kind", "carried_out"),
    [("close", 0), ("lose_answer", 1), ("cut_answer", 1)],
)
def test_a_connection_that_breaks(proxy, counter, kind, carried_out):
    with proxy.fault(kind) as fault, pytest.raises(NOTHING_HEARD):
        counter.add()
    assert fault.used == 1
    assert counter.value() == carried_out
    counter.add()
    assert counter.value() == carried_out + 1


def test_a_request_that_is_delivered_twice(proxy, counter):
    with proxy.fault("twice", times=1):
        answer = counter.add(ReturnValues="ALL_NEW")
    assert counter.value() == int(answer["Attributes"]["v"]["N"]) == 2


def test_an_answer_that_drips(proxy, counter):
    proxy.link.drip_ms = 20
    with Stopwatch() as watch:
        counter.add()
    assert watch.seconds > 0.1
    assert counter.value() == 1


@pytest.mark.parametrize(
    ("kind", "expected", "status", "carried_out"),
    [
        ("error_before", "InternalServerError", 500, 0),
        ("error_after", "InternalServerError", 500, 1),
        ("throttle", "ProvisionedThroughputExceededException", 400, 0),
        ("deny", "AccessDeniedException", 400, 0),
        ("expired", "ExpiredTokenException", 400, 0),
    ],
)
def test_an_answer_that_is_made_up(proxy, counter, kind, expected, status, carried_out):
    with proxy.measure() as seen, proxy.fault(kind):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            counter.add()
        assert code(caught) == expected
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert counter.value() == carried_out
    assert (seen.requests[0].fault, seen.requests[0].status) == (kind, status)
    assert seen.wcu == carried_out


def test_a_made_up_answer_may_say_something_else(proxy, counter):
    fault = proxy.fault("throttle", code="RequestLimitExceeded")
    with fault, pytest.raises(botocore.exceptions.ClientError) as caught:
        counter.add()
    assert code(caught) == "RequestLimitExceeded"


def test_an_answer_with_a_wrong_checksum(proxy, counter):
    with proxy.fault("garble"), pytest.raises(botocore.exceptions.ChecksumError):
        counter.add()
    assert counter.value() == 1


def test_a_late_request_arrives_although_its_client_has_given_up(proxy, counter):
    with proxy.measure() as seen, proxy.fault("late", delay_ms=300, times=1):
        with pytest.raises(NOTHING_HEARD):
            counter.add()
        counter.add()
        assert counter.value() == 1
    eventually(lambda: seen.requests[0].raw_answer)
    assert counter.value() == 2


def test_a_black_hole_answers_nothing_until_it_is_closed(proxy, counter):
    with ThreadPoolExecutor(1) as pool:
        with proxy.fault("black_hole") as fault:
            call = pool.submit(counter.add)
            eventually(lambda: fault.used)
            with pytest.raises(TimeoutError):
                call.result(timeout=0.1)
        with pytest.raises(botocore.exceptions.HTTPClientError):
            call.result()
    assert counter.value() == 0
    counter.add()


def test_faults_befall_one_operation_so_many_times_and_not_at_once(proxy, counter):
    fault = proxy.fault("throttle", operation="UpdateItem", times=2, skip=1)
    counter.add()
    counter.get()
    for _ in range(2):
        with pytest.raises(botocore.exceptions.ClientError):
            counter.add()
    counter.add()
    assert fault.used == 2
    assert counter.value() == 2


def test_a_fault_may_choose_its_victims(proxy, counter):
    proxy.fault("throttle", when=lambda request: request.body["Key"]["PK"]["S"] == "b")
    counter.add("a")
    with pytest.raises(botocore.exceptions.ClientError):
        counter.add("b")


def test_faults_in_force_strike_in_order(proxy, counter):
    proxy.fault("throttle", times=1)
    proxy.fault("deny", times=1)
    codes = []
    for _ in range(2):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            counter.add()
        codes.append(code(caught))
    assert codes == ["ProvisionedThroughputExceededException", "AccessDeniedException"]


def test_connections_are_refused_and_the_port_is_kept(proxy, counter):
    counter.add()
    with proxy.refusing(), pytest.raises(botocore.exceptions.EndpointConnectionError):
        counter.add()
    counter.add()
    assert counter.value() == 2


def test_idle_connections_can_be_closed(proxy, counter):
    with proxy.measure() as seen:
        counter.add()
        proxy.drop_connections()
        counter.add()
    assert seen.connections == 2


def test_an_unknown_fault_is_a_mistake_of_the_test(proxy):
    with pytest.raises(ValueError, match="black_hole"):
        proxy.fault("typo")
