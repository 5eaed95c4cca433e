"""Sixteen thousand entities with traffic as uneven as it gets: whales, spikes and a long tail."""

from __future__ import annotations

import random
import time

from common import number_from_environment, prepared_by
from locust import constant, task

from zae_limiter import Limit
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

ENTITIES = number_from_environment("LOADTEST_ENTITIES", 16_000)
RESOURCE = "loadtest-stress"
WHALES = 8  # entities that alone send a fifth of all calls
SPIKE_EVERY_S, SPIKE_S = 20, 3  # how often, and for how long, all spike users call one entity
POWER = 1.1  # of the power law: the n-th entity is called n ** -POWER times as often as the first
LIMITS = [Limit.per_minute("rpm", 6000), Limit.per_minute("tpm", 6_000_000)]


def prepare(client: RateLimiterSession) -> None:
    client.set_resource_defaults(RESOURCE, LIMITS)


class StressUser(RateLimiterUser):
    """Calls back to back; derived classes choose the entity that a call charges."""

    abstract = True
    wait_time = constant(0)

    def choose(self) -> int:
        raise NotImplementedError

    @task
    def acquire(self) -> None:
        consume = {"rpm": 1, "tpm": random.randint(10, 2000)}
        entity_id = f"stress-{self.choose():05}"
        with self.client.acquire(entity_id, RESOURCE, consume, name=type(self).__name__):
            pass


@prepared_by(prepare)
class TailUser(StressUser):
    """Follows the power law over all entities."""

    weight = 7

    def choose(self) -> int:
        # The inverse of the distribution function, which needs no table of 16,000 weights.
        share = random.random()
        highest = ENTITIES ** (1 - POWER)
        return min(ENTITIES - 1, int((1 - share * (1 - highest)) ** (1 / (1 - POWER))))


@prepared_by(prepare)
class WhaleUser(StressUser):
    """Calls for one of a few entities."""

    weight = 2

    def choose(self) -> int:
        return random.randrange(WHALES)


@prepared_by(prepare)
class SpikeUser(StressUser):
    """Any entity; every now and then all users the same one."""

    weight = 1

    def choose(self) -> int:
        now = time.time()
        is_spike = now % SPIKE_EVERY_S < SPIKE_S
        return int(now // SPIKE_EVERY_S) % ENTITIES if is_spike else random.randrange(ENTITIES)
