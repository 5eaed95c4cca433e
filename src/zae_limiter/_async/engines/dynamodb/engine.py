"""The engine on DynamoDB: the engine over items, over one table."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import DynamoStore
from zae_limiter._async.engines.items.engine import ItemsEngine
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.settings import Settings

CAPABILITIES = BackendCapabilities(
    engine="dynamodb",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=False,
    usage_history=True,
    infrastructure=True,
)


class DynamoEngine(ItemsEngine):
    """One table, reached through one client."""

    def __init__(self, client: DynamoClient, settings: Settings) -> None:
        parallel = Parallel(settings.parallel_mode, warns=False)
        super().__init__(DynamoStore(client, parallel), settings, CAPABILITIES, parallel)
        self.client = client
