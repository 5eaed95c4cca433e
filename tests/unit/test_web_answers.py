"""The answers to requests that are not served, without a server."""

import json

import pytest

from zae_limiter import (
    Limit,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
    web,
)
from zae_limiter.web.answers import find_error


def rejection(amount):
    with SyncRepository.open(url="memory://") as repository:
        limiter = SyncRateLimiter(repository=repository)
        limiter.set_system_defaults([Limit.per_minute("rpm", 5)])
        with (
            pytest.raises(RateLimitExceeded) as caught,
            limiter.acquire("acme", "api", {"rpm": 5}),
            limiter.acquire("acme", "api", {"rpm": amount}),
        ):
            pass
    return caught.value


@pytest.mark.parametrize("amount", [1, 6])
def test_a_public_answer_says_when_to_retry_and_nothing_else(amount):
    error = rejection(amount)
    answer = web.refusal(error)
    body = json.loads(answer.body)
    assert set(body) == {"error", "message", "retry_after_seconds"}
    assert "acme" not in str(body)
    assert ("never" in body["message"]) == (body["retry_after_seconds"] is None) == (amount == 6)
    assert json.loads(web.refusal(error, details=True).body) == error.as_dict()


def test_an_outage_names_no_store():
    error = RateLimiterUnavailable("no answer", stack_name="stack", entity_id="acme")
    answer = web.refusal(error, details=True)
    assert answer.status == 503
    assert b"stack" not in answer.body
    assert b"acme" not in answer.body


def test_an_error_is_found_inside_of_others():
    wanted = rejection(1)
    wrapped = LookupError()
    wrapped.__cause__ = ExceptionGroup("several", [ValueError(), wanted])
    assert find_error(wrapped) is wanted


def test_an_error_that_is_its_own_cause_holds_nothing():
    error = LookupError()
    error.__cause__ = error
    assert find_error(error) is None
