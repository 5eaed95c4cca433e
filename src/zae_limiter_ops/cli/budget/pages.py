"""The budgets of ``budget list``, selected from pages of buckets."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from zae_limiter_ops.cli.shared.listing import FIRST_PAGE, PAGE
from zae_limiter_ops.views.budgets import Budget
from zae_limiter_ops.views.in_force import LimitsInForce
from zae_limiter_ops.views.limit_view import views_of_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState

DELIMITER = "#"  # between entity and resource in a cursor, which names a bucket


@dataclass(frozen=True, slots=True)
class BudgetPages:
    """The budgets of an entity, of a resource, of both, or of whole namespaces.

    A record is the list of the budgets of one bucket; buckets without budgets are left out.
    """

    entity_id: str | None
    resource: str | None
    in_force: LimitsInForce = field(default_factory=LimitsInForce)

    def of_namespace(
        self, repository: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[list[Budget]], str | None]:
        """Return a page of at most ``size`` buckets with budgets, and the next cursor.

        Large pages of buckets are read until one of them has a budget.
        """
        while True:
            states, cursor = repository.list_buckets(
                PAGE, cursor, entity_id=self.entity_id, resource=self.resource
            )
            found = self._budgets(repository, states)
            if len(found) > size:
                last = found[size - 1][0].limit
                return found[:size], f"{last.entity_id}{DELIMITER}{last.resource}"
            if found or cursor is None:
                return found, cursor

    def first_page(
        self, repository: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[list[Budget]], str | None]:
        """Return budgets among the first buckets, for a hint, which must be cheap."""
        states, _ = repository.list_buckets(
            FIRST_PAGE, cursor, entity_id=self.entity_id, resource=self.resource
        )
        return self._budgets(repository, states)[:size], None

    def _budgets(self, repository: SyncRepository, states: list[BucketState]) -> list[list[Budget]]:
        with_budgets = [
            state
            for _, bucket in groupby(states, _place)
            for state in _if_it_has_a_budget(list(bucket))
        ]
        in_force = self.in_force.applied(repository, with_budgets)
        return list(_budgets(in_force, repository.namespace_name))


def _place(state: BucketState) -> tuple[str, str]:
    return state.entity_id, state.resource


def _if_it_has_a_budget(bucket: list[BucketState]) -> list[BucketState]:
    """Return a bucket, or nothing: only buckets with budgets need the limits in force."""
    return bucket if any(state.limit.currency is not None for state in bucket) else []


def _budgets(states: list[BucketState], namespace: str) -> Iterator[list[Budget]]:
    for _, bucket in groupby(states, _place):
        views = [view for view in views_of_bucket(bucket) if view.currency is not None]
        if views:
            yield [Budget(view, namespace) for view in views]
