"""How many settings an apply may delete: a truncated manifest must not empty a store."""

from __future__ import annotations

import math

from zae_limiter.exceptions import ZAELimiterError

UNASKED = 10  # settings that any apply may delete
UNASKED_SHARE = 4  # an apply may delete one in so many of the settings that exist
ALL = math.inf


class DeletionsRefused(ZAELimiterError):
    """An apply would delete more settings than it may. Nothing was changed."""


def are_too_many(deleted: int, existing: int, allowed: float | None) -> bool:
    """Return whether an apply must not delete so many of the managed settings that exist.

    If no number is allowed, more than 10 are too many if they are more than a quarter.
    """
    if allowed is not None:
        return deleted > allowed
    return deleted > UNASKED and deleted * UNASKED_SHARE > existing


def check_deletions(deleted: int, existing: int, allowed: float | None) -> None:
    """Raise DeletionsRefused if an apply must not delete so many settings."""
    if are_too_many(deleted, existing, allowed):
        raise DeletionsRefused(
            f"this apply would delete {deleted:,} of {existing:,} managed settings; if that is "
            f"meant, allow it: --allow-deletions {deleted}, allow_deletions={deleted} in Python, "
            f"AllowDeletions: {deleted} in a template of CloudFormation"
        )
