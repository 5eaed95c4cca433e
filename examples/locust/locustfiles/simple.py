"""One resource, one limit, an acquire every few hundred milliseconds."""

from __future__ import annotations

from common import create, prepared_by, user_number
from locust import between, task

from zae_limiter import Limit
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

RESOURCE = "loadtest-simple"
PARENT = "loadtest-simple-parent"


def prepare(client: RateLimiterSession) -> None:
    client.set_resource_defaults(RESOURCE, [Limit.per_minute("rpm", 600)])
    create(client, PARENT)
    client.set_limits(PARENT, [Limit.per_minute("rpm", 1_000_000)], RESOURCE)


@prepared_by(prepare)
class SimpleUser(RateLimiterUser):
    """An entity of its own, no cascade."""

    wait_time = between(0.1, 0.5)

    def on_start(self) -> None:
        self.entity_id = f"loadtest-simple-{user_number(self)}"

    @task
    def acquire(self) -> None:
        with self.client.acquire(self.entity_id, RESOURCE, {"rpm": 1}, name="simple"):
            pass


@prepared_by(prepare)
class SimpleCascadeUser(RateLimiterUser):
    """A child of a parent that all users share: every acquire is charged to both."""

    wait_time = between(0.1, 0.5)

    def on_start(self) -> None:
        self.entity_id = f"loadtest-simple-child-{user_number(self)}"
        create(self.client, self.entity_id, PARENT)

    @task
    def acquire(self) -> None:
        with self.client.acquire(self.entity_id, RESOURCE, {"rpm": 1}, name="simple cascade"):
            pass
