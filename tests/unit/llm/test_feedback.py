"""What providers say when they refuse, and what SDKs do in silence."""

from datetime import UTC, datetime
from types import SimpleNamespace

import httpx2
import pytest
import requests

from zae_limiter import llm
from zae_limiter.llm.feedback import RequestCount, count_into, is_refusal, status_of

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def error(status=429, headers=None, **attributes):
    response = SimpleNamespace(status_code=status, headers=headers or {})
    return SimpleNamespace(status_code=status, response=response, **attributes)


def boto_error(status=429, attempts=0):
    metadata = {"HTTPStatusCode": status, "RetryAttempts": attempts, "HTTPHeaders": {}}
    return SimpleNamespace(response={"ResponseMetadata": metadata, "Error": {"Code": "Throttling"}})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Sun, 15 Nov 2026 11:00:00 GMT"}, 0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12ms"}, 0.012),
        (
            {
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "2m59.56s",
            },
            179.56,
        ),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "17"}, 17),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-15T12:00:42Z",
            },
            42,
        ),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, None),
        ({"x-ratelimit-remaining-tokens": "0"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_provider_asks_for(headers, seconds):
    assert llm.provider_wait(error(headers=headers), NOW) == pytest.approx(seconds)


def test_gemini_says_it_in_the_body():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = {"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"reason": "x"}, info]}}
    refused = SimpleNamespace(code=429, response=SimpleNamespace(headers={}), details=body)
    assert llm.provider_wait(refused) == 34


def test_errors_of_plain_http_clients_are_read_too():
    """As aiohttp, httpx and requests raise them; a response of requests is false here."""
    headers = {"retry-after": "7"}
    assert llm.provider_wait(SimpleNamespace(status=429, headers=headers)) == 7
    sent = httpx2.Request("POST", "http://localhost")
    response = httpx2.Response(429, headers=headers, request=sent)
    assert llm.provider_wait(httpx2.HTTPStatusError("", request=sent, response=response)) == 7
    refused = requests.Response()
    refused.status_code = 429
    refused.headers.update(headers)
    assert not refused
    assert llm.provider_wait(requests.HTTPError(response=refused)) == 7


@pytest.mark.parametrize("status", [200, 400, 500, 503])
def test_only_refusals_for_lack_of_room_ask_to_wait(status):
    assert llm.provider_wait(error(status, {"retry-after": "7"})) is None


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (error(503), 503),
        (SimpleNamespace(code=404), 404),
        (SimpleNamespace(code="rate_limit", response=SimpleNamespace(status_code=429)), 429),
        (boto_error(429), 429),
        (ValueError("x"), None),
        (SimpleNamespace(code=7), None),
    ],
)
def test_the_status_of_an_error(failure, status):
    assert status_of(failure) == status


@pytest.mark.parametrize(
    ("failure", "refused"),
    [
        (error(429), True),
        (error(400), True),
        (boto_error(429), True),
        (error(408), False),
        (error(500), False),
        (error(200), False),
        (ValueError("x"), False),
    ],
)
def test_a_refusal_is_what_the_provider_did_not_begin(failure, refused):
    assert is_refusal(failure) == refused


def sent(count):
    return SimpleNamespace(request=SimpleNamespace(headers={"x-stainless-retry-count": count}))


class WithoutRequest:
    @property
    def request(self):
        raise RuntimeError("the request was not set")


@pytest.mark.parametrize(
    ("answer", "retries"),
    [
        (SimpleNamespace(retries_taken=2), 2),
        (SimpleNamespace(response=sent("1")), 1),
        (sent("2"), 2),
        ({"ResponseMetadata": {"RetryAttempts": 3}}, 3),
        (boto_error(attempts=2), 2),
        (SimpleNamespace(response=WithoutRequest()), 0),
        (SimpleNamespace(response=sent("many")), 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_retries_of_an_sdk(answer, retries):
    assert llm.retries_of(answer) == retries


async def test_a_hook_counts_for_sync_and_async_clients():
    count = RequestCount()
    llm.count_request("of no call")
    before = count_into(count)
    llm.count_request("sync")
    await llm.count_request("async")
    count_into(before)
    llm.count_request("of no call")
    assert count.requests == 2
