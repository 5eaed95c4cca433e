"""Opens a namespace of the function's table for a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter._sync.builder import SyncRepositoryBuilder
from zae_limiter_ops._sync.provisioner import SyncProvisioner
from zae_limiter_ops.transport.partitions import dynamodb_endpoint

REQUEST_TIMEOUT_S = 10.0  # longer than an acquire's: only an apply waits for these calls


@contextmanager
def opened_provisioner(table: str, namespace: str, principal: str) -> Iterator[SyncProvisioner]:
    """Open a namespace of the table for the block, without creating or updating anything."""
    builder = SyncRepositoryBuilder().stack(table).endpoint_url(dynamodb_endpoint())
    builder.namespace(namespace).provision("never").auto_update(False)
    with builder.request_timeout(REQUEST_TIMEOUT_S).build() as repository:
        yield repository.provisioner(principal)
