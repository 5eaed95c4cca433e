"""Where a run keeps its data: in a place of its own, which is gone afterwards."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import InfrastructureError

logger = logging.getLogger("zae_limiter")


@asynccontextmanager
async def demo_repository(url: str | None) -> AsyncIterator[Repository]:
    """A new namespace of the store at ``url``, or a new SQLite file in a temporary folder."""
    namespace = f"demo-{secrets.token_hex(4)}"
    if url is not None:
        async with await Repository.open(namespace, url=url) as repository:
            try:
                yield repository
            finally:
                await _remove(repository, namespace)
        return
    with TemporaryDirectory(prefix="zae-limiter-demo-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "demo.db"
        async with await Repository.open(namespace, url=f"sqlite:///{quote(str(file))}") as opened:
            yield opened


async def _remove(repository: Repository, namespace: str) -> None:
    try:
        await repository.purge_namespace(await repository.delete_namespace(namespace))
    except InfrastructureError as error:
        logger.warning("namespace %r stays in the store: %s", namespace, error)
