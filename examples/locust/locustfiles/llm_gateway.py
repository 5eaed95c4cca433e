"""An LLM gateway: eight models, requests and tokens per minute, estimates that are settled.

A user is a connection of the gateway, which serves one call after the other for any of its keys.
``LOADTEST_ENTITIES`` is the number of keys (1,000), ``LOADTEST_ANSWER_MS`` how long a model takes
to answer (0: the limiter alone is measured).
"""

from __future__ import annotations

import random

import gevent
from common import number_from_environment, prepared_by
from locust import constant, task

from zae_limiter import Limit
from zae_limiter.locust import RateLimiterSession, RateLimiterUser

KEYS = number_from_environment("LOADTEST_ENTITIES", 1000)
ANSWER_MS = number_from_environment("LOADTEST_ANSWER_MS", 0)
MODELS = (
    "gpt-5",
    "gpt-5-mini",
    "claude-opus",
    "claude-sonnet",
    "claude-haiku",
    "gemini-pro",
    "gemini-flash",
    "llama-70b",
)
LIMITS = [Limit.per_minute("rpm", 120), Limit.per_minute("tpm", 150_000)]
BUSY_KEYS = 5  # that send a share of all calls, more than their limits admit
BUSY_SHARE = 0.05
OTHER_MODEL = 0.02  # of the calls of a key are for another model than its usual one
PROMPT_TOKENS = (100, 1500)
ANSWER_TOKENS = (50, 1000)


def prepare(client: RateLimiterSession) -> None:
    for model in MODELS:
        client.set_resource_defaults(model, LIMITS)


@prepared_by(prepare)
class LlmGatewayUser(RateLimiterUser):
    """Charges an estimate, waits for the model, settles what the call has used."""

    wait_time = constant(0)

    @task
    def complete(self) -> None:
        is_busy = random.random() < BUSY_SHARE
        number = random.randrange(min(BUSY_KEYS, KEYS) if is_busy else KEYS)
        usual = MODELS[number % len(MODELS)]
        model = random.choice(MODELS) if random.random() < OTHER_MODEL else usual
        prompt, most = random.randint(*PROMPT_TOKENS), ANSWER_TOKENS[1]
        with self.client.acquire(
            f"key-{number:04}", model, {"rpm": 1, "tpm": prompt + most}, name=model
        ) as lease:
            if ANSWER_MS:
                gevent.sleep(random.expovariate(1000 / ANSWER_MS))
            lease.adjust(tpm=random.randint(*ANSWER_TOKENS) - most)
