"""Usage of all providers in one form, and what it costs."""

from types import SimpleNamespace

import pytest

from zae_limiter import ValidationError, llm
from zae_limiter.llm import Usage, Weights

CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 50,
    "total_tokens": 150,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens_details": {"reasoning_tokens": 20},
}
ANTHROPIC = {
    "input_tokens": 30,
    "output_tokens": 50,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 10,
    "output_tokens_details": {"thinking_tokens": 20},
}
BEDROCK = {
    "inputTokens": 30,
    "outputTokens": 50,
    "totalTokens": 150,
    "cacheReadInputTokens": 60,
    "cacheWriteInputTokens": 10,
}
GEMINI = {
    "prompt_token_count": 90,
    "tool_use_prompt_token_count": 10,
    "candidates_token_count": 30,
    "thoughts_token_count": 20,
    "cached_content_token_count": 60,
    "total_token_count": 150,
}
GEMINI_HTTP = {
    "promptTokenCount": 90,
    "toolUsePromptTokenCount": 10,
    "candidatesTokenCount": 30,
    "thoughtsTokenCount": 20,
    "cachedContentTokenCount": 60,
    "totalTokenCount": 150,
}


def as_object(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    return value


FULL = Usage(100, 50, cached_tokens=60, cache_write_tokens=10, reasoning_tokens=20)
HOUR = Usage(100, 50, 60, 10, 20, cache_write_1h_tokens=4)
ANTHROPIC_HOUR = {
    **ANTHROPIC,
    "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4},
}
BEDROCK_HOUR = {
    **BEDROCK,
    "cacheDetails": [{"ttl": "5m", "inputTokens": 6}, {"ttl": "1h", "inputTokens": 4}],
}
REPORTS = [
    pytest.param({"usage": ANTHROPIC_HOUR}, HOUR, id="anthropic-hour"),
    pytest.param(
        {"usage": BEDROCK_HOUR},
        Usage(100, 50, 60, 10, cache_write_1h_tokens=4),
        id="bedrock-hour",
    ),
    pytest.param({"usage": CHAT}, FULL, id="chat"),
    pytest.param({"usage": RESPONSES}, FULL, id="responses"),
    pytest.param({"usage": ANTHROPIC}, FULL, id="anthropic"),
    pytest.param({"usage": BEDROCK}, Usage(100, 50, 60, 10), id="bedrock"),
    pytest.param({"usage_metadata": GEMINI}, Usage(100, 50, 60, 0, 20), id="gemini"),
    pytest.param({"usageMetadata": GEMINI_HTTP}, Usage(100, 50, 60, 0, 20), id="gemini-http"),
    pytest.param({"usage": {"prompt_tokens": 8, "total_tokens": 8}}, Usage(8, 0), id="embeddings"),
    pytest.param({"response": {"usage": RESPONSES}}, FULL, id="event of responses"),
    pytest.param({"message": {"usage": ANTHROPIC}}, FULL, id="start of anthropic"),
    pytest.param({"metadata": {"usage": BEDROCK}}, Usage(100, 50, 60, 10), id="end of bedrock"),
]


@pytest.mark.parametrize("form", [dict, as_object])
@pytest.mark.parametrize(("response", "usage"), REPORTS)
def test_every_provider_is_read_in_one_form(form, response, usage):
    assert llm.usage_of(form(response)) == usage


def test_a_proxy_that_mixes_names_counts_the_cache_once():
    mixed = {"prompt_tokens": 100, "completion_tokens": 5, "cache_read_input_tokens": 60}
    assert llm.usage_of({"usage": mixed}) == Usage(100, 5)


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": {"prompt_tokens": "100"}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")}},
        {"metadata": {"usage": "mine"}},
        None,
        "text",
        SimpleNamespace(usage=None),
    ],
)
def test_where_no_usage_is_reported_there_is_none(response):
    assert llm.usage_of(response) is None


@pytest.mark.parametrize(("count", "tokens"), [(12.0, 12), (12.5, 13), (-3.5, 0), (1e300, 10**9)])
def test_a_count_with_a_fraction_is_rounded_up(count, tokens):
    usage = {"prompt_tokens": count, "completion_tokens": count}
    assert llm.usage_of({"usage": usage}) == Usage(tokens, tokens)


def test_a_total_without_output_says_what_the_output_was():
    assert llm.usage_of({"usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 10}}) == Usage(
        7, 3
    )


def test_usages_add_up():
    assert Usage(1, 2, 1, 0, 1, requests=2) + Usage(10, 20) == Usage(11, 22, 1, 0, 1, requests=3)
    assert Usage(11, 22).total_tokens == 33


@pytest.mark.parametrize(
    ("weights", "cost"),
    [
        (llm.ALL_TOKENS, 150),
        (llm.REQUESTS, 1),
        (llm.INPUT_TOKENS, 100),
        (llm.UNCACHED_INPUT_TOKENS, 40),
        (llm.OUTPUT_TOKENS, 50),
        (Weights(cached=0.1, output=5), 30 + 6 + 10 + 250),
        (Weights(cached="0.1", cache_write=1.25, output=0), 49),  # 30 + 6 + 12.5, rounded up
        (Weights(input=0, output=1, reasoning=0, request=2), 32),
        (Weights(input=0, output=0), 0),
    ],
)
def test_weights_say_what_each_kind_of_token_costs(weights, cost):
    assert weights.cost(FULL) == cost


def test_a_weight_is_taken_as_it_is_written():
    assert Weights(input=0.1, output=0).cost(Usage(30)) == 3  # 0.1 * 30 > 3 in binary


@pytest.mark.parametrize("weight", [-1, "many", float("nan"), float("inf"), [1]])
def test_a_weight_is_a_number(weight):
    with pytest.raises(ValidationError, match="cached"):
        Weights(cached=weight)


def test_a_meter_charges_each_limit_by_its_weights():
    meter = {"rpm": llm.REQUESTS, "itpm": llm.INPUT_TOKENS, "otpm": llm.OUTPUT_TOKENS}
    assert llm.costs(FULL, meter) == {"rpm": 1, "itpm": 100, "otpm": 50}
