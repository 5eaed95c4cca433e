"""Acquires back to back, with limits that never reject: the ceiling of throughput."""

from __future__ import annotations

from common import create, prepared_by, user_number
from locust import constant, task

from zae_limiter import Limit
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

RESOURCE = "loadtest-max"
PARENT = "loadtest-max-parent"
ENDLESS = Limit.per_minute("rpm", 1_000_000_000)


def prepare(client: RateLimiterSession) -> None:
    client.set_resource_defaults(RESOURCE, [ENDLESS])
    create(client, PARENT)


@prepared_by(prepare)
class MaxRpsUser(RateLimiterUser):
    """An entity of its own, no cascade."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.entity_id = f"loadtest-max-{user_number(self)}"

    @task
    def acquire(self) -> None:
        with self.client.acquire(self.entity_id, RESOURCE, {"rpm": 1}, name="max"):
            pass


@prepared_by(prepare)
class MaxRpsCascadeUser(RateLimiterUser):
    """A child of a parent that all users share: what a cascade costs."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.entity_id = f"loadtest-max-child-{user_number(self)}"
        create(self.client, self.entity_id, PARENT)

    @task
    def acquire(self) -> None:
        with self.client.acquire(self.entity_id, RESOURCE, {"rpm": 1}, name="max cascade"):
            pass
