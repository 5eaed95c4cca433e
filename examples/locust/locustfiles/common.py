"""What the scenarios share: preparation of the store, and numbers of users."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from zae_limiter import EntityExistsError
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

Prepare = Callable[[RateLimiterSession], None]
USERS_PER_WORKER = 1_000_000  # so that numbers of two workers never meet
_numbers = count()


def number_from_environment(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def prepared_by(prepare: Prepare) -> Callable[[type[RateLimiterUser]], type[RateLimiterUser]]:
    """Call ``prepare`` once before users of the decorated class start.

    Locust tells all processes that a test starts; the one that begins it prepares the store.
    In memory, where processes share nothing, each prepares its own.
    """

    def decorate(user_class: type[RateLimiterUser]) -> type[RateLimiterUser]:
        def on_test_start(environment: Environment, **_: object) -> None:
            if not any(issubclass(each, user_class) for each in environment.user_classes):
                return
            client = user_class.open_client(environment)
            is_shared = client.limiter.repository.capabilities.shared_between_processes
            if not (is_shared and isinstance(environment.runner, WorkerRunner)):
                prepare(client)

        events.test_start.add_listener(on_test_start)
        return user_class

    return decorate


def user_number(user: RateLimiterUser) -> int:
    """Return a number that no other user of the test has."""
    worker = max(0, getattr(user.environment.runner, "worker_index", 0))
    return worker * USERS_PER_WORKER + next(_numbers)


def create(client: RateLimiterSession, entity_id: str, parent_id: str | None = None) -> None:
    """Create an entity, unless an earlier test has; its acquires are charged to its parent, too.

    By the limiter itself, not by the session: it is no request of the test, and no failure of it.
    """
    with suppress(EntityExistsError):
        client.limiter.create_entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)
