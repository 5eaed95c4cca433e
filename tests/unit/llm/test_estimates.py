"""Estimates before a call."""

import base64
import io
from types import SimpleNamespace

import pydantic
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
    ("request_", "names"),
    [
        ({"messages": [{"role": "user", "content": "one two three"}]}, 4),
        ({"messages": [{"content": [{"type": "text", "text": "one two three"}]}]}, 5),
        ({"input": "one two three"}, 1),
        ({"prompt": "one two three"}, 1),
        ({"contents": [{"role": "user", "parts": [{"text": "one two three"}]}]}, 5),
        ({"contents": "one two three"}, 1),
        ({"config": {"system_instruction": "one two three"}}, 1),
        ({"extra_body": {"documents": ["one two three"]}}, 1),
        (SimpleNamespace(prompt="one two three"), 1),
    ],
)
def test_every_text_and_every_name_counts(request_, names):
    assert llm.estimate_input(request_, words) == 3 + names


def test_instructions_and_tools_are_read_by_the_model_too():
    request = {
        "system": "one two",
        "messages": [{"role": "user", "content": "three"}],
        "tools": [{"name": "four", "description": "five six", "strict": True}],
    }
    names = ["system", "messages", "role", "user", "content", "tools", "name", "description"]
    assert llm.estimate_input(request, words) == 6 + len(names) + len(["strict", "True"])


def test_settings_are_not_read_by_the_model():
    request = {"input": "one"}
    settings = {"model": "m", "temperature": 0.5, "max_tokens": 5, "user": "u", "stream": True}
    assert llm.estimate_input(request | settings) == llm.estimate_input(request)


PNG = b"\x89PNG\r\n" + b"\0" * 900_000
ENCODED = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{ENCODED}"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL, "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/" + "a" * 2_000}},
        {"type": "input_image", "image_url": URL},
        {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": URL}},
        {"type": "input_file", "filename": "a.pdf", "file_data": ENCODED},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "image_generation_call", "id": "1", "result": ENCODED},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {"media_type": "application/pdf", "data": ENCODED}},
        {"type": "image", "source": {"media_type": "image/png", "data": io.BytesIO(PNG)}},
        {"inline_data": {"mime_type": "image/png", "data": PNG}},
        {"inlineData": {"mimeType": "image/png", "data": ENCODED}},
        {"file_data": {"mime_type": "video/mp4", "file_uri": "https://example.com/a"}},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://a"}}}},
    ],
    ids=lambda part: "-".join(map(str, part.keys())) + str(part.get("type", "")),
)
@pytest.mark.parametrize("inside", ["message", "tool result"])
def test_a_declared_attachment_costs_no_letters(part, inside):
    content = [part] if inside == "message" else [{"type": "tool_result", "content": [part]}]
    request = {"messages": [{"role": "user", "content": content}]}
    assert 1_500 < llm.estimate_input(request) < 1_560


LETTERS = "a" * 90_000


def encoded(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": URL},
        {"type": "tool_use", "input": {"type": "image_url", "image_url": {"url": URL}}},
        {"functionCall": {"name": "f", "args": {"inline_data": {"data": ENCODED}}}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": LETTERS},
        },
        {"type": "document", "title": LETTERS, "source": {"type": "url", "url": "https://a"}},
        {"type": "input_file", "filename": LETTERS, "file_data": URL},
        {"document": {"format": "txt", "name": "a", "source": {"bytes": LETTERS.encode()}}},
        {"document": {"format": "md", "name": "a", "source": {"bytes": b"\xe4" * 90_000}}},
        {"inline_data": {"mime_type": "text/plain", "data": LETTERS.encode()}},
        {"type": "image_url", "image_url": {"url": "data:," + LETTERS}},
        {"type": "image_url", "image_url": {"url": "data:text/csv;base64," + LETTERS + "=" * 8}},
        {"type": "file", "file": {"file_data": "plain words " * 7_500}},
        {"type": "input_file", "file_data": "data:;base64," + encoded("\0" + LETTERS)},
        {"type": "input_file", "file_data": "data:image/png;base64," + encoded("a\0b" * 30_000)},
        {"document": LETTERS},
        {"type": "document", "source": {"type": "content", "content": URL}},
        {"type": "document", "source": {"type": "content", "content": [{"text": URL}]}},
        {"type": "image_url", "image_url": {"url": LETTERS}},
        {"type": "image_url", "image_url": {"url": [LETTERS]}},
        {"type": "image_url", "image_url": {"url": {"x": LETTERS}}},
        {"type": "input_file", "file_id": LETTERS},
    ],
    ids=lambda part: "-".join(map(str, part.keys())) + str(part.get("type", "")),
)
def test_what_is_read_as_text_counts_as_text(part):
    request = {"messages": [{"role": "user", "content": [part]}]}
    assert llm.estimate_input(request) > 90_000 * 3 / 4 / 4


def test_a_text_may_be_sent_as_token_ids():
    assert llm.estimate_input({"input": [123_456] * 900}) == 900 + 2
    assert llm.estimate_input({"input": [[123_456] * 900] * 2}) == 1_800 + 2
    assert llm.estimate_input({"input": [10**4_000]}) > 1_000


class Answer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    text: str
    refusal: str | None = None


def lookup(city: str) -> str:
    """Say what the weather is."""


def test_objects_of_an_sdk_are_read_by_their_fields():
    contents = [Answer(text="one two", more="three")]
    assert llm.estimate_input({"contents": contents}, words) == 3 + len(
        ["contents", "text", "more"]
    )
    assert llm.estimate_input(Answer(text="one"), words) == 2


def test_classes_and_functions_are_read_as_an_sdk_describes_them():
    schema = llm.estimate_input({"response_format": Answer.model_json_schema()})
    assert llm.estimate_input({"response_format": Answer}) == schema
    assert llm.estimate_input({"response_schema": list[Answer]}) > schema
    tokens = llm.estimate_input({"tools": [lookup]})
    assert tokens > llm.count_tokens("lookup(city: str) -> str Say what the weather is.")


@pytest.mark.parametrize(
    "request_",
    ["text", b"{}", ["messages"], 5, {"messages": iter([])}, {"messages": (m for m in [])}],
)
def test_a_request_that_cannot_be_read_is_refused(request_):
    with pytest.raises(ValidationError, match="request"):
        llm.estimate_input(request_)


def test_nesting_without_end_is_refused():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ValidationError, match="nested deeper"):
        llm.estimate_input({"messages": cycle})
    source = {}
    source["source"] = source
    with pytest.raises(ValidationError, match="nested deeper"):
        llm.estimate_input({"messages": [{"content": [{"type": "image", **source}]}]})


@pytest.mark.parametrize("depth", [200, 3_000])
def test_a_configuration_that_is_nested_too_deep_is_refused(depth):
    request = {"messages": "x"}
    for _ in range(depth):
        request = {"config": request}
    with pytest.raises(ValidationError, match=r"request\.config: is nested deeper"):
        llm.estimate_input(request)


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
    assert MaxTokens()("gpt-4", CHAT) == Estimate(110, 50)
    uncapped = {"input": "abc"}
    assert MaxTokens()("gpt-4", uncapped) == Estimate(3, 1_024)
    assert MaxTokens(default_output=0)("embed", uncapped) == Estimate(3, 0)


def test_learned_reserves_a_percentile_of_each_resource():
    learned = Learned(0.9, min_samples=10)
    assert learned("gpt-4", CHAT) == Estimate(110, 50)  # nothing learned: the cap
    for output in range(1, 11):
        learned.observe("gpt-4", Usage(1, output))
    assert learned("gpt-4", CHAT) == Estimate(110, 9)
    assert learned("gpt-4", {**CHAT, "max_tokens": 3}) == Estimate(110, 3)
    assert learned("gpt-3", CHAT) == Estimate(110, 50)


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
