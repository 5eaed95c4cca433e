"""A day of an LLM product: chats, completions, embeddings and batches of projects and their keys.

``LOADTEST_SHAPE`` chooses how the number of users changes: ``daily`` (a day in the duration of the
test: night, morning, noon, evening) or ``spike`` (a steady load with a sudden one in the middle).
``--users`` is the most users at once.
"""

from __future__ import annotations

import math
import os
import random

import gevent
from common import create, number_from_environment, prepared_by
from locust import LoadTestShape, between, task

from zae_limiter import Limit
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

PROJECTS = number_from_environment("LOADTEST_PROJECTS", 20)
KEYS_PER_PROJECT = 10
CHAT, EMBEDDINGS = "chat-model", "embedding-model"
KEY_LIMITS = [Limit.per_minute("rpm", 300), Limit.per_minute("tpm", 200_000)]
PROJECT_LIMITS = [Limit.per_minute("rpm", 1500), Limit.per_minute("tpm", 1_000_000)]
SHAPE = os.environ.get("LOADTEST_SHAPE", "daily")


def prepare(client: RateLimiterSession) -> None:
    for model in (CHAT, EMBEDDINGS):
        client.set_resource_defaults(model, KEY_LIMITS)
    for project in range(PROJECTS):
        for model in (CHAT, EMBEDDINGS):
            client.set_limits(f"project-{project:03}", PROJECT_LIMITS, model)
        create(client, f"project-{project:03}")
        for key in range(KEYS_PER_PROJECT):
            create(client, f"project-{project:03}-key-{key}", f"project-{project:03}")


@prepared_by(prepare)
class LlmProductionUser(RateLimiterUser):
    """A person at the product: mostly chats, now and then something larger."""

    wait_time = between(0.05, 0.5)

    def on_start(self) -> None:
        project, key = random.randrange(PROJECTS), random.randrange(KEYS_PER_PROJECT)
        self.entity_id = f"project-{project:03}-key-{key}"

    @task(10)
    def chat(self) -> None:
        self.call(CHAT, "chat", estimate=800, used=random.randint(100, 900), seconds=0.05)

    @task(4)
    def complete(self) -> None:
        self.call(CHAT, "completion", estimate=400, used=random.randint(50, 400), seconds=0.02)

    @task(3)
    def embed(self) -> None:
        self.call(EMBEDDINGS, "embedding", estimate=200, used=200, seconds=0.005)

    @task(1)
    def batch(self) -> None:
        self.call(CHAT, "batch", estimate=20_000, used=random.randint(5000, 25_000), seconds=0.2)

    @task(1)
    def look(self) -> None:
        self.client.available(self.entity_id, CHAT, name="what is left")

    def call(self, model: str, name: str, *, estimate: int, used: int, seconds: float) -> None:
        consume = {"rpm": 1, "tpm": estimate}
        with self.client.acquire(self.entity_id, model, consume, name=name) as lease:
            gevent.sleep(seconds)
            lease.adjust(tpm=used - estimate)


class ProductionShape(LoadTestShape):
    """Takes the most users and the duration from the options of the run."""

    abstract = True
    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        options = self.runner.environment.parsed_options
        seconds = float(options.run_time)
        passed = self.get_run_time() / seconds
        if passed >= 1:
            return None
        users = max(1, round(options.num_users * self.share(passed)))
        return users, max(1.0, options.num_users / 2)

    def share(self, passed: float) -> float:
        raise NotImplementedError


class DailyShape(ProductionShape):
    """One day: quiet at its ends, two peaks, a dip at noon."""

    abstract = SHAPE != "daily"

    def share(self, passed: float) -> float:
        return 0.15 + 0.85 * max(0.0, math.sin(math.pi * passed)) * (
            1 - 0.3 * math.exp(-((passed - 0.5) ** 2) / 0.005)
        )


class SpikeShape(ProductionShape):
    """A fifth of the users, all of them from 45 % to 60 % of the time."""

    abstract = SHAPE != "spike"

    def share(self, passed: float) -> float:
        return 1.0 if 0.45 <= passed < 0.6 else 0.2
