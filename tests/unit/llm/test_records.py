"""What a call is charged, from what is known about it."""

from types import SimpleNamespace

import pytest

from zae_limiter import llm
from zae_limiter.llm import Estimate, Usage
from zae_limiter.llm.records import CallRecord

ANSWER = {"usage": {"prompt_tokens": 10, "completion_tokens": 7}}
ESTIMATE = Estimate(100, 500)


def record(**options):
    return CallRecord(ESTIMATE, llm.DEFAULT_METER, **options)


def refused(status=429, retries="0"):
    request = SimpleNamespace(headers={"x-stainless-retry-count": retries})
    error = LookupError("refused")
    error.status_code = status
    error.response = SimpleNamespace(status_code=status, request=request, headers={})
    return error


def test_a_silent_call_costs_its_estimate():
    call = record()
    assert call.is_silent
    assert call.usage() == Usage(100, 500)
    assert call.amounts(call.usage()) == {"rpm": 1, "tpm": 600}


def test_a_reported_call_costs_what_was_reported_also_if_its_block_fails():
    call = record()
    assert call.record(ANSWER) == Usage(10, 7)
    assert call.usage() == call.usage(ValueError()) == Usage(10, 7)
    assert call.is_exact
    assert not call.is_silent


@pytest.mark.parametrize("error", [ValueError(), refused(500), refused(429), refused(400)])
def test_a_failed_call_costs_its_input(error):
    assert record().usage(error) == Usage(100)


@pytest.mark.parametrize(("status", "tokens"), [(429, 0), (400, 0), (500, 100), (408, 100)])
def test_a_refused_call_is_free_of_tokens_only_if_so_wanted(status, tokens):
    assert record(charge_refused=False).usage(refused(status)) == Usage(tokens)


def test_retries_count_wherever_they_are_known():
    assert record().usage(refused(retries="2")).requests == 3
    call = record()
    call.record(SimpleNamespace(retries_taken=2, parse=lambda: ANSWER))
    assert call.usage() == Usage(10, 7, requests=3)
    call = record()
    call.record(ANSWER)
    call.sent.requests = 4  # as a hook of the HTTP client has counted
    assert call.usage() == Usage(10, 7, requests=4)


def test_several_answers_and_streams_add_up():
    call = record(count=len)
    call.record(ANSWER)
    call.record_usage(Usage(1, 2))
    stream = call.record_stream(None)
    stream.meter.see({"choices": [{"delta": {"content": "abc"}}]})
    assert call.usage() == Usage(10 + 1 + 100, 7 + 2 + 3, requests=3)
    assert call.has_open_stream
    assert not call.is_exact
    stream.is_open = False
    assert not call.has_open_stream


def test_an_answer_without_usage_costs_its_text():
    call = record(count=len)
    assert call.record({"choices": [{"message": {"content": "abc"}}]}) is None
    assert call.usage() == Usage(100, 3)
    assert not call.is_exact


def test_a_response_that_says_nothing_leaves_the_estimate():
    call = record()
    assert call.record({}) is None
    assert call.is_silent
    assert call.usage() == Usage(100, 500)


def test_a_refund_is_for_calls_that_were_never_sent():
    call = record()
    call.is_refunded = True
    assert call.amounts(call.usage(ValueError())) == {"rpm": 0, "tpm": 0}
    call.sent.requests = 1
    assert call.usage(ValueError()) == Usage(100)
    call.record(ANSWER)
    assert call.usage() == Usage(10, 7)
