"""All ports of an engine, and a look at the table behind their back."""

from dataclasses import dataclass, field

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import DynamoStore
from zae_limiter._async.engines.items.audit import ItemAudit
from zae_limiter._async.engines.items.configs import ItemConfigs
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.documents import ItemDocuments
from zae_limiter._async.engines.items.entities import ItemEntities
from zae_limiter._async.engines.items.namespaces import ItemNamespaces
from zae_limiter._async.engines.items.usage.reading import ItemUsage
from zae_limiter._sync.engines.dynamodb import client as sync_client
from zae_limiter._sync.engines.dynamodb.store import DynamoStore as SyncDynamoStore
from zae_limiter._sync.engines.items import configs as sync_configs
from zae_limiter._sync.engines.items import context as sync_context
from zae_limiter._sync.engines.items import entities as sync_entities
from zae_limiter._sync.engines.items import namespaces as sync_namespaces
from zae_limiter._sync.engines.items.audit import ItemAudit as SyncItemAudit
from zae_limiter.models.config import ConfigLevel, LevelChange, LevelConfig
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.parallel import Parallel

NS = "ns-1"
NOW_MS = 1_767_225_600_000  # 2026-01-01
TIMEOUT_S = 2.0


def limits(capacity, *names):
    """What a level may hold."""
    return LevelConfig(tuple(Limit.per_minute(name, capacity) for name in names or ("rpm",)))


def set_limits(configs, level, config, namespace_id=NS, now_ms=NOW_MS, principal=None):
    """Replace the limits and the policy of a level."""
    change = LevelChange(ConfigLevel(*level), config.limits, config.on_unavailable)
    return configs.change(namespace_id, change, now_ms=now_ms, principal=principal)


def delete_limits(configs, level):
    """Delete the limits and the policy of a level."""
    change = LevelChange(ConfigLevel(*level), ())
    return configs.change(NS, change, now_ms=NOW_MS, principal=None)


@dataclass
class Witness:
    """A cache listener that keeps what it is called with."""

    buckets: list = field(default_factory=list)
    entities: list = field(default_factory=list)

    def on_bucket_read(self, namespace_id, entity_id, resource, item):
        self.buckets.append((namespace_id, entity_id, resource, item))

    def on_entity_read(self, namespace_id, entity_id, entity):
        self.entities.append((namespace_id, entity_id, entity))


@dataclass
class Ports:
    client: object
    store: object
    witness: Witness
    configs: object
    entities: object
    namespaces: object
    audit: object
    documents: object = None
    usage: object = None


def ports(table, url, request_timeout=TIMEOUT_S):
    client = DynamoClient(table, endpoint_url=url, request_timeout=request_timeout)
    witness = Witness()
    parallel = Parallel()
    store = DynamoStore(client, parallel)
    context = TableContext(store, witness, parallel, audit_retention_days=7)
    return Ports(
        client,
        store,
        witness,
        ItemConfigs(context),
        ItemEntities(context),
        ItemNamespaces(context),
        ItemAudit(context),
        ItemDocuments(context),
        ItemUsage(context),
    )


def sync_ports(table, url, request_timeout=TIMEOUT_S):
    client = sync_client.DynamoClient(table, endpoint_url=url, request_timeout=request_timeout)
    witness = Witness()
    parallel = Parallel("threadpool")
    store = SyncDynamoStore(client, parallel)
    context = sync_context.TableContext(store, witness, parallel, audit_retention_days=7)
    return Ports(
        client,
        store,
        witness,
        sync_configs.ItemConfigs(context),
        sync_entities.ItemEntities(context),
        sync_namespaces.ItemNamespaces(context),
        SyncItemAudit(context),
    )


class Raw:
    """Items as they are stored."""

    def __init__(self, boto, table):
        self.boto = boto
        self.table = table

    def get(self, key):
        answer = self.boto.get_item(TableName=self.table, Key=key.attributes, ConsistentRead=True)
        return answer.get("Item")

    def put(self, *items):
        for start in range(0, len(items), 25):
            requests = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self.boto.batch_write_item(RequestItems={self.table: requests})

    def all(self):
        pages = self.boto.get_paginator("scan").paginate(TableName=self.table)
        items = [item for page in pages for item in page["Items"]]
        return sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))

    def of(self, namespace_id):
        """Every item whose key says that it belongs to the namespace."""
        return [each for each in self.all() if each["PK"]["S"].startswith(f"{namespace_id}/")]
