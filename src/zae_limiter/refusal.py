"""What refused an acquire: one limit, a pause or a mode of one bucket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

# In place of a limit, if no limit refused the acquire. No limit has a name with a space.
BY_DENY, BY_PAUSE = "mode deny", "a pause"


class LimitedBy(NamedTuple):
    """The entity and the resource of the bucket that refused an acquire, and its limit.

    ``limit`` is ``"mode deny"`` if the bucket is denied, and ``"a pause"`` if it is paused.
    """

    entity_id: str
    resource: str
    limit: str

    def __str__(self) -> str:
        return f"{self.limit} of {self.entity_id} on {self.resource}"

    def within(self, entity_id: str, resource: str) -> LimitedBy:
        """Fill empty names in with those of the bucket that has stored this one."""
        return LimitedBy(self.entity_id or entity_id, self.resource or resource, self.limit)


def limited_by(statuses: Iterable[LimitStatus]) -> LimitedBy | None:
    """Return what refused an acquire with these statuses: the violation with the longest wait."""
    worst = longest_wait(statuses)
    if worst is None:
        return None
    limit = worst.limit_name
    if worst.is_denied:
        limit = BY_DENY
    elif worst.paused_seconds:
        limit = BY_PAUSE
    return LimitedBy(worst.entity_id, worst.resource, limit)


def longest_wait(statuses: Iterable[LimitStatus]) -> LimitStatus | None:
    """Return the violation with the longest wait; None if no limit is exceeded."""
    worst = None
    for status in statuses:
        if not status.exceeded:
            continue
        if worst is None or status.retry_after_seconds > worst.retry_after_seconds:
            worst = status
    return worst
