"""Answers of a provider in any form are read without an error, and believed within bounds."""

from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter import ValidationError, llm
from zae_limiter.llm.feedback import headers_of, status_of
from zae_limiter.llm.records import CallRecord

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
A_DAY = 86_400
HEADERS = (
    "retry-after", "retry-after-ms", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset",
)  # fmt: skip
FIELDS = (
    "ResponseMetadata", "HTTPHeaders", "HTTPStatusCode", "RetryAttempts", "args", "candidates",
    "candidates_token_count", "choices", "chunk", "code", "content", "contentBlockDelta", "delta",
    "details", "error", "finish_reason", "function", "function_call", "headers", "items", "message",
    "metadata", "outputTokens", "parse", "parts", "prompt_tokens", "prompt_tokens_details",
    "request", "response", "retries_taken", "retryDelay", "sdk_http_response", "status_code",
    "stream", "text", "tool_calls", "total_tokens", "type", "usage", "usage_metadata",
    "x-stainless-retry-count",
)  # fmt: skip


class Hostile:
    """An object of another library whose every field raises."""

    def __getattr__(self, name):
        raise (AttributeError if name.startswith("_") else RuntimeError)(name)


dates = st.datetimes().map(lambda moment: format_datetime(moment.replace(tzinfo=UTC)))
texts = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"[0-9.]{1,30}(ms|s|m|h)?", fullmatch=True),
    dates,
    dates.map(lambda date: date.replace("+0000", "-2359")),
    st.datetimes().map(str),
    st.sampled_from(["nan", "inf", "-inf", "²", "-5", "1e400", "9" * 60_000, "9" * 60_000 + "s"]),
    st.sampled_from(["chunk", "response.completed", "content_block_delta", "message_delta"]),
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.just(Hostile())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5).map(
            lambda fields: SimpleNamespace(**fields)
        )
    ),
    max_leaves=15,
)


def refusal(headers, status=429):
    response = SimpleNamespace(status_code=status, headers=headers)
    return SimpleNamespace(status_code=status, response=response)


@given(st.dictionaries(st.sampled_from(HEADERS), texts, max_size=4))
@example({"retry-after": "Mon, 01 Jan 0001 00:00:00 -2359"})
@example({"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"})
@example({"retry-after": "Fri, 31 Dec 99999999999999999999 23:59:59 GMT"})
@example({"retry-after": "Sat, 99 Foo 2026 99:99:99 +9999999999"})
@example({"retry-after": "0001-01-01T00:00:00+23:59"})
@example({"retry-after": "9" * 60_000 + "s"})
def test_headers_of_refusals_are_believed_for_at_most_a_day(headers):
    seconds = llm.provider_wait(refusal(headers), NOW)
    assert seconds is None or 0 <= seconds <= A_DAY


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("Fri, 31 Dec 9999 23:59:59 GMT", A_DAY), ("1e300", A_DAY), ("90000h", A_DAY), ("-3", 0)],
)
def test_more_than_a_day_is_a_day(retry_after, seconds):
    assert llm.provider_wait(refusal({"retry-after": retry_after}), NOW) == seconds


@given(values)
@example({"choices": 5})
@example({"choices": [{"delta": {"tool_calls": 5}}]})
@example({"candidates": [{"content": {"parts": 5}}]})
@example(SimpleNamespace(status_code=429, details={"details": 5}))
@example(SimpleNamespace(request=SimpleNamespace(headers={"x-stainless-retry-count": "²"})))
def test_any_answer_is_read_without_an_error(answer):
    assert llm.retries_of(answer) >= 0
    assert isinstance(headers_of(answer), dict)
    status = status_of(answer)
    assert status is None or 100 <= status <= 599
    usage = llm.usage_of(answer)
    assert usage is None or 0 <= usage.total_tokens < 10**10
    record = CallRecord(llm.Estimate(100, 500), llm.DEFAULT_METER)
    record.record_stream(answer).meter.see(answer)
    assert record.amounts(record.usage())["tpm"] >= 100 or usage is not None
    failed = CallRecord(llm.Estimate(100, 500), llm.DEFAULT_METER)
    error = ValueError() if answer is None else answer
    failed.fail(error)
    assert failed.amounts(failed.usage()) == {"rpm": 1 + llm.retries_of(error), "tpm": 100}


@given(values)
@example({"usage": {"prompt_tokens": 3}, "stream": "no"})
@example({"usage": {"prompt_tokens": 3}, "stream": [1]})
@example(SimpleNamespace(usage={"prompt_tokens": 3}, stream={"x": 1}))
def test_any_response_is_recorded_or_refused_with_a_word(response):
    record = CallRecord(llm.Estimate(100, 500), llm.DEFAULT_METER)
    usage = llm.usage_of(response)
    with suppress(ValidationError) if usage is None else nullcontext():
        assert record.record(response) == usage
    record.fail(ValueError())
    assert 0 <= record.usage().total_tokens < 10**10


def test_a_count_that_no_model_reaches_is_not_believed():
    record = CallRecord(llm.Estimate(100, 500), {"usd": llm.Weights(input=10**9)})
    record.record({"usage": {"prompt_tokens": 10**400, "completion_tokens": 0}})
    assert record.amounts(record.usage()) == {"usd": 10**15}
