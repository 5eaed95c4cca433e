"""What a call is charged, from what is known about it."""

import asyncio
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
import requests

from zae_limiter import ValidationError, llm
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


def failed(call, error):
    """Return the usage of a call whose block has raised."""
    call.fail(error)
    return call.usage()


def test_a_silent_call_costs_its_estimate():
    call = record()
    assert call.is_silent
    assert call.usage() == Usage(100, 500)
    assert call.amounts(call.usage()) == {"rpm": 1, "tpm": 600}


def test_a_reported_call_costs_what_was_reported_also_if_its_block_fails():
    call = record()
    assert call.record(ANSWER) == Usage(10, 7)
    assert call.usage() == Usage(10, 7)
    assert call.is_exact
    assert failed(call, ValueError()) == Usage(10, 7)
    assert not call.is_silent


@pytest.mark.parametrize("error", [ValueError(), refused(500), refused(429), refused(400)])
def test_a_failed_call_costs_its_input(error):
    assert failed(record(), error) == Usage(100)


@pytest.mark.parametrize(("status", "tokens"), [(429, 0), (400, 0), (500, 100), (408, 100)])
def test_a_refused_call_is_free_of_tokens_only_if_so_wanted(status, tokens):
    assert failed(record(charge_refused=False), refused(status)) == Usage(tokens)


def test_retries_count_wherever_they_are_known():
    assert failed(record(), refused(retries="2")).requests == 3
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


def test_an_estimated_answer_is_not_longer_than_the_request_lets_it_be():
    call = record(count=len, most_output=5)
    call.record({"choices": [{"message": {"content": "a long answer"}}]})
    stream = call.record_stream(None)
    stream.meter.see({"choices": [{"delta": {"content": "a long stream"}}]})
    assert call.usage() == Usage(200, 5 + 5, requests=2)


def test_a_reported_answer_may_be_longer_than_the_request_lets_it_be():
    call = record(count=len, most_output=5)
    call.record(ANSWER)
    assert call.usage() == Usage(10, 7)


def test_a_response_that_says_nothing_leaves_the_estimate():
    call = record()
    assert call.record({}) is None
    assert call.is_silent
    assert call.usage() == Usage(100, 500)


def test_a_refund_is_for_calls_that_were_never_sent():
    call = record()
    call.is_refunded = True
    assert call.amounts(failed(call, ValueError())) == {"rpm": 0, "tpm": 0}
    call.sent.requests = 1
    assert call.usage() == Usage(100)
    call.record(ANSWER)
    assert call.usage() == Usage(10, 7)


def with_usage(double):
    double.usage = SimpleNamespace(prompt_tokens=10, completion_tokens=7)
    return double


@pytest.mark.parametrize(
    "response",
    [{**ANSWER, "stream": "no"}, with_usage(Mock()), with_usage(MagicMock())],
    ids=["field", "mock", "magic-mock"],
)
def test_a_response_that_reports_its_usage_is_no_stream(response):
    assert record().record(response) == Usage(10, 7)


class Events:
    """As Bedrock's: it can be iterated over, but is no iterator."""

    def __iter__(self):
        return iter(())


async def later():
    return ANSWER


def http_response():
    response = requests.Response()
    response.status_code = 200
    return response


@pytest.mark.parametrize(
    ("response", "advice"),
    [
        (iter([ANSWER]), "call.stream(response)"),
        ({"stream": Events()}, "call.stream(response)"),
        (http_response(), "response.json()"),
    ],
    ids=["iterator", "bedrock", "http"],
)
def test_what_cannot_be_read_is_refused_with_advice_and_costs_its_estimate(response, advice):
    call = record()
    with pytest.raises(ValidationError) as caught:
        call.record(response)
    assert advice in str(caught.value)
    assert not call.is_silent
    assert failed(call, caught.value) == ESTIMATE.usage


@pytest.mark.parametrize("mistake", [iter([ANSWER]), later], ids=["stream", "unparsed"])
def test_the_advice_can_be_followed_without_paying_twice(mistake):
    call = record()
    with pytest.raises(ValidationError):
        call.record(mistake() if asyncio.iscoroutinefunction(mistake) else mistake)
    assert call.usage() == ESTIMATE.usage
    call.record(ANSWER)
    assert call.usage() == Usage(10, 7)
    assert call.is_exact


def test_an_error_that_is_recorded_is_a_failed_call():
    call = record(charge_refused=False)
    error = refused(429, retries="1")
    error.response.headers = {"retry-after": "7"}
    assert call.record(error) is None
    assert (call.usage(), call.provider_wait) == (Usage(requests=2), 7)
    call.record(ValueError())
    assert (call.usage(), call.provider_wait) == (Usage(100, requests=3), None)
    call.record(ANSWER)
    assert call.usage() == Usage(110, 7, requests=4)
    assert not call.is_exact
