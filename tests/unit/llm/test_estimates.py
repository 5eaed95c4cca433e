"""Estimates before a call."""

from types import SimpleNamespace

import pytest

from zae_limiter import ValidationError, llm
from zae_limiter.llm import Estimate, Learned, MaxTokens, Usage
from zae_limiter.llm.estimates import resolve

CHAT = {"messages": [{"role": "user", "content": "a" * 300}], "max_tokens": 50}


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("日本語", 3), ("\ud800", 1)]
)
def test_a_third_of_the_bytes(text, tokens):
    assert llm.count_tokens(text) == tokens


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": "one two three"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "one two three"}]}]},
        {"input": "one two three"},
        {"prompt": "one two three"},
        {"contents": [{"role": "user", "parts": [{"text": "one two three"}]}]},
        {"contents": "one two three"},
    ],
)
def test_the_text_of_every_request_is_found(request_):
    assert llm.estimate_input(request_, words) == 3 + 4


def test_instructions_and_tools_are_read_by_the_model_too():
    request = {
        "system": "one two",
        "messages": [{"role": "user", "content": "three"}],
        "tools": [{"name": "four", "description": "five six"}],
    }
    assert llm.estimate_input(request, words) == 6 + 3 * 4


def test_instructions_of_gemini_are_in_its_config():
    request = {"contents": "one", "config": {"system_instruction": "two three"}}
    assert llm.estimate_input(request, words) == 3 + 2 * 4


def test_attachments_cost_what_they_cost_not_their_bytes():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 900_000}}
    request = {"messages": [{"role": "user", "content": [image]}]}
    assert llm.estimate_input(request) == 1_500 + 4
    inline = {"contents": [{"parts": [{"inline_data": {"data": b"\0" * 900_000}}]}]}
    assert llm.estimate_input(inline) == 1_500 + 4


def test_objects_of_an_sdk_are_read_by_their_dump():
    content = SimpleNamespace(model_dump=lambda exclude_none: {"parts": [{"text": "one two"}]})
    assert llm.estimate_input({"contents": [content]}, words) == 2 + 4


def test_an_input_is_never_estimated_as_nothing():
    assert llm.estimate_input({}) == 1


@pytest.mark.parametrize(
    ("request_", "cap"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 9}, 5),
        ({"max_output_tokens": 5}, 5),
        ({"max_tokens": 5, "n": 3}, 15),
        ({"inferenceConfig": {"maxTokens": 5}}, 5),
        ({"config": {"max_output_tokens": 5, "candidate_count": 2}}, 10),
        ({"config": SimpleNamespace(max_output_tokens=5)}, 5),
        ({"generationConfig": {"maxOutputTokens": 5}}, 5),
        ({"max_tokens": "5"}, None),
        ({}, None),
    ],
)
def test_the_cap_of_the_output(request_, cap):
    assert llm.output_cap(request_) == cap


def test_max_tokens_reserves_the_cap_or_its_default():
    assert MaxTokens()("gpt-4", CHAT) == Estimate(104, 50)
    uncapped = {"input": "abc"}
    assert MaxTokens()("gpt-4", uncapped) == Estimate(5, 1_024)
    assert MaxTokens(default_output=0)("embed", uncapped) == Estimate(5, 0)


def test_learned_reserves_a_percentile_of_each_resource():
    learned = Learned(0.9, min_samples=10)
    assert learned("gpt-4", CHAT) == Estimate(104, 50)  # nothing learned: the cap
    for output in range(1, 11):
        learned.observe("gpt-4", Usage(1, output))
    assert learned("gpt-4", CHAT) == Estimate(104, 9)
    assert learned("gpt-4", {**CHAT, "max_tokens": 3}) == Estimate(104, 3)
    assert learned("gpt-3", CHAT) == Estimate(104, 50)


def test_learned_forgets_old_calls_and_old_resources():
    learned = Learned(1, window=10, min_samples=1)
    for output in [1_000, *[5] * 10]:
        learned.observe("gpt-4", Usage(1, output))
    assert learned.percentile_of("gpt-4") == 5
    for number in range(2_000):
        learned.observe(f"model-{number}", Usage(1, 1))
    assert learned.percentile_of("gpt-4") is None
    assert learned.percentile_of("model-1999") == 1


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"percentile": 0}, "percentile"),
        ({"percentile": 1.5}, "percentile"),
        ({"window": 5, "min_samples": 10}, "window"),
    ],
)
def test_learned_checks_its_arguments(arguments, name):
    with pytest.raises(ValidationError, match=name):
        Learned(**arguments)


def test_a_number_counts_as_input_and_a_function_is_asked():
    assert resolve(500, "gpt-4", None) == Estimate(500)
    assert resolve(lambda resource, request: Estimate(len(request)), "gpt-4", "abc") == Estimate(3)
    assert resolve(lambda resource, request: 7, "gpt-4", None) == Estimate(7)


@pytest.mark.parametrize("estimate", [-1, 1.5, "many", MaxTokens(), Learned()])
def test_an_estimate_that_says_nothing_is_refused(estimate):
    with pytest.raises(ValidationError):
        resolve(estimate, "gpt-4", None)
