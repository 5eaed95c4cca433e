"""Removing a namespace's data under the eyes of somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import status
from zae_limiter.cli.errors import Interrupted
from zae_limiter.cli.namespace_lookup import unknown_id
from zae_limiter.cli.words import rows

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository


def purge_with_progress(
    repository: SyncRepository, namespace_id: str, principal: str | None
) -> int:
    """Returns how many rows went. However it ends before that, it says how far it got."""
    from zae_limiter.exceptions import (
        NamespaceNotFoundError,
        PermissionDenied,
        RateLimiterUnavailable,
    )

    removed = 0
    with status(f"purging {namespace_id}") as update:

        def progress(count: int) -> None:
            nonlocal removed
            removed = count
            update(f"purging {namespace_id}: {rows(count)} removed")

        try:
            return repository.purge_namespace(namespace_id, progress, principal)
        except NamespaceNotFoundError:
            raise click.ClickException(unknown_id(namespace_id)) from None
        except (PermissionDenied, RateLimiterUnavailable) as error:
            raise click.ClickException(f"{error}; {_how_far(namespace_id, removed)}") from error
        except KeyboardInterrupt:
            raise Interrupted(_how_far(namespace_id, removed)) from None


def _how_far(namespace_id: str, removed: int) -> str:
    return (
        f"after at least {rows(removed)}; the rest is there, and what is gone is gone. Go on: "
        f"zae-limiter namespace purge {namespace_id}"
    )
