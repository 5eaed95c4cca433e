"""The server that other tests run on."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.dynamodb import DynamoServer, Proxy
from tests.support.dynamodb.server import ServerError, find_binary

CHILD = """
from tests.support.dynamodb import DynamoServer
server = DynamoServer().start()
print(server.pid, flush=True)
input()
"""

SHARED = """
from tests.support.dynamodb import shared_endpoint
print(shared_endpoint())
"""


def put(client, name):
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName=name, Item={"PK": {"S": "a"}})


def items(client, name):
    return client.scan(TableName=name)["Items"]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_servers_are_independent_of_each_other(boto, unique_name):
    with DynamoServer() as one, DynamoServer() as other:
        assert one.url != other.url
        put(boto(one.url), unique_name)
        assert boto(other.url).list_tables()["TableNames"] == []


def test_a_file_survives_a_kill(boto, tmp_path, unique_name):
    with DynamoServer(tmp_path / "store.db") as server:
        put(boto(server.url), unique_name)
        url = server.url
        server.kill()
        server.restart()
        assert server.url == url
        assert items(boto(url), unique_name) == [{"PK": {"S": "a"}}]


def test_memory_does_not_survive_a_restart(boto):
    with DynamoServer() as server:
        put(boto(server.url), "some-table-name")
        server.restart()
        assert boto(server.url).list_tables()["TableNames"] == []


def test_a_proxy_finds_a_server_that_was_restarted(boto, tmp_path, unique_name):
    with DynamoServer(tmp_path / "store.db") as server, Proxy(server.url) as proxy:
        client = boto(proxy.url)
        put(client, unique_name)
        server.kill()
        server.restart()
        assert items(client, unique_name) == [{"PK": {"S": "a"}}]


def test_a_server_ends_with_its_block():
    with DynamoServer() as server:
        pid = server.pid
    assert not alive(pid)


def test_a_server_does_not_outlive_a_test_process_that_is_killed():
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    pid = int(child.stdout.readline())
    assert alive(pid)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    give_up_at = time.monotonic() + 5
    while alive(pid) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not alive(pid)


def test_a_missing_server_is_an_error_that_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("ZAEL_DYNOXIDE", raising=False)
    with pytest.raises(ServerError, match="make tools"):
        find_binary(tmp_path)
    monkeypatch.setenv("ZAEL_DYNOXIDE", str(tmp_path / "nothing"))
    with pytest.raises(ServerError, match="ZAEL_DYNOXIDE"):
        DynamoServer().start()


def test_the_environment_may_name_another_endpoint():
    done = subprocess.run(
        [sys.executable, "-c", SHARED],
        env=os.environ | {"ZAEL_TEST_ENDPOINT": "http://localhost:1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "http://localhost:1"
