"""Stores with very many entities, written directly: through the library it takes minutes."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice

from tests.support.dynamodb import DynamoServer
from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.table import create_request
from zae_limiter.items.stored import bucket, config_writes, entities, keys
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity

LIMITS = (Limit.per_minute("rpm", 5),)
BATCH_ITEMS = 25  # at most in one BatchWriteItem
PARALLEL_WRITES = 4


@contextmanager
def bulk_store(engine, folder, count, namespace="default"):
    """Yield URL and namespace id of a store with ``count`` keys, all with limits of their own."""
    if engine == "sqlite":
        yield fill_file(folder / "limits.db", namespace, count)
    else:
        with DynamoServer() as server:
            yield fill_table(server.url, namespace, count)


@contextmanager
def bulk_buckets(engine, folder, count):
    """Yield the URL of a store with ``count`` used buckets on 'gpt-4', and no entities."""
    if engine == "sqlite":
        yield _buckets_in_file(folder / "limits.db", count)
    else:
        with DynamoServer() as server:
            yield _buckets_in_table(server.url, count)


def _use_one(url):
    with SyncRepository.open(url=url) as repository:
        with SyncRateLimiter(repository).acquire("key-000000", "gpt-4", {"rpm": 5}, LIMITS):
            pass
        return repository.namespace_id


def _buckets_in_file(path, count):
    url = f"sqlite:///{path}"
    namespace_id = _use_one(url)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO bucket SELECT namespace_id, printf('key-%06d', i), resource, state, "
            "expires_ms FROM bucket, n WHERE entity_id = 'key-000000' AND namespace_id = ?",
            (count - 1, namespace_id),
        )
        connection.commit()
    return url


def _buckets_in_table(endpoint, count):
    table = "test-very-many"
    with closing(DynamoClient(table, endpoint_url=endpoint, request_timeout=30)) as client:
        client.call("CreateTable", create_request(table, stream=False))
        namespace_id = _use_one(store_url(table, endpoint))
        key = keys.bucket(namespace_id, "key-000000", "gpt-4")
        first = client.call("GetItem", {"Key": key.attributes})["Item"]
        items = (
            {
                **first,
                **keys.bucket(namespace_id, f"key-{number:06d}", "gpt-4").attributes,
                **bucket.index_keys(namespace_id, f"key-{number:06d}", "gpt-4"),
            }
            for number in range(1, count)
        )
        _put_all(client, table, items)
    return store_url(table, endpoint)


def fill_file(path, namespace, count):
    url = f"sqlite:///{path}"
    namespace_id = _start(url, namespace)
    connection = sqlite3.connect(path)
    for table, columns in (
        ("config", "resource, body"),
        ("entity", "name, parent_id, cascade, metadata, created_at"),
    ):
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            f"INSERT INTO {table} SELECT namespace_id, printf('key-%06d', i), {columns} "
            f"FROM {table}, n WHERE entity_id = 'key-000000' AND namespace_id = ?",
            (count - 1, namespace_id),
        )
    connection.commit()
    connection.close()
    return url, namespace_id


def fill_table(endpoint, namespace, count):
    """Create the table without a stream, which would slow the server down."""
    table = "test-very-many"
    with closing(DynamoClient(table, endpoint_url=endpoint, request_timeout=30)) as client:
        request = create_request(table)
        del request["StreamSpecification"]
        client.call("CreateTable", request)
        namespace_id = _start(store_url(table, endpoint), namespace)
        items = (
            item for number in range(1, count) for item in _items(namespace_id, f"key-{number:06d}")
        )
        _put_all(client, table, items)
    return store_url(table, endpoint), namespace_id


def _put_all(client, table, items):
    def put(batch):
        puts = [{"PutRequest": {"Item": item}} for item in batch]
        client.call("BatchWriteItem", {"RequestItems": {table: puts}}, repeatable=True)

    batches = iter(lambda: list(islice(items, BATCH_ITEMS)), [])
    with ThreadPoolExecutor(PARALLEL_WRITES) as pool:
        while some := list(islice(batches, 100)):  # not all items at once in memory
            list(pool.map(put, some))


def _start(url, namespace):
    """Create the first key, which the others are copies of; return the namespace id."""
    with SyncRepository.open(namespace, url=url) as repository:
        repository.create_entity("key-000000", parent_id="project")
        repository.set_limits("key-000000", LIMITS, "gpt-4")
        return repository.namespace_id


def _items(namespace_id, entity_id):
    entity = Entity(entity_id, parent_id="project", created_at="2026-01-01T00:00:00Z")
    yield entities.encode(namespace_id, entity, "bulk")
    level = ConfigLevel(entity_id, "gpt-4")
    yield config_writes.encode(namespace_id, level, LevelConfig(LIMITS), "bulk")
