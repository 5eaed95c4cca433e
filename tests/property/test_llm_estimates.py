"""Whatever a request holds: its estimate against the text in it, counted independently."""

import base64
import json

from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter import llm

TEXTS = st.one_of(
    st.text('ab {}"\n é日', max_size=40),
    st.builds(str.__mul__, st.sampled_from(["a", "{}", "x,\n"]), st.integers(0, 900)),
    st.builds(lambda text: f"data:image/png;base64,{text}", st.text("Aa+/", max_size=1_500)),
)
# Names that mean an attachment, but not here: arguments of tools are read as text.
NAMES = st.sampled_from(
    [
        "type",
        "image_url",
        "url",
        "data",
        "source",
        "content",
        "inline_data",
        "file",
        "bytes",
        "role",
    ]
) | st.text("xyz", max_size=1_200)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def text_bytes(value):
    """The bytes of every name, text and number of a value."""
    if isinstance(value, dict):
        return sum(len(name.encode()) + text_bytes(inner) for name, inner in value.items())
    if isinstance(value, list):
        return sum(map(text_bytes, value))
    return len((value if isinstance(value, str) else json.dumps(value)).encode())


def openai_chat(text, content):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    schema = {"type": "object", "properties": content}
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "tool_calls": [call]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "prediction": {"type": "content", "content": text},
        "unheard_of": content,
    }


def openai_responses(text, content):
    call = {"type": "function_call", "name": "f", "call_id": "1", "arguments": text}
    answer = {"type": "function_call_output", "call_id": "1", "output": text}
    schema = {"type": "json_schema", "name": "s", "schema": content}
    return {"instructions": text, "input": [call, answer], "text": {"format": schema}}


def anthropic(text, content):
    use = {"type": "tool_use", "id": "1", "name": "f", "input": content}
    result = {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "text", "text": text}],
    }
    plain = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "title": text, "source": plain}
    messages = [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, document]},
    ]
    return {"system": text, "messages": messages, "tools": [{"name": "f", "input_schema": content}]}


def gemini(text, content):
    parts = [
        {"text": text},
        {"functionCall": {"name": "f", "args": content}},
        {"functionResponse": {"name": "f", "response": content}},
    ]
    config = {"response_schema": content, "system_instruction": text}
    return {"contents": [{"role": "user", "parts": parts}], "config": config}


def bedrock(text, content):
    use = {"toolUse": {"toolUseId": "1", "name": "f", "input": content}}
    result = {"toolResult": {"toolUseId": "1", "content": [{"json": content}, {"text": text}]}}
    source = {"document": {"format": "txt", "name": text, "source": {"text": text}}}
    tool = {"toolSpec": {"name": "f", "inputSchema": {"json": content}}}
    return {
        "messages": [{"role": "user", "content": [{"text": text}, use, result, source]}],
        "toolConfig": {"tools": [tool]},
        "promptVariables": {"x": {"text": text}},
    }


@given(text=TEXTS, content=JSON)
@example(text="a" * 108_000, content={})
@example(text="a,b\n" * 27_000, content={})
@example(text="", content={"x" * 108_000: None})
@example(text="", content={f"name_{number}": {} for number in range(9_000)})
@example(text="", content=[{"type": "image_url", "image_url": {"url": "data:,x" * 15_000}}])
@example(text="", content={"type": "image", "source": {"data": "A" * 108_000}})
@example(text="", content=[[]] * 30_000)
def test_an_estimate_is_at_least_a_quarter_of_the_text(text, content):
    for form in (openai_chat, openai_responses, anthropic, gemini, bedrock):
        request = form(text, content)
        assert 4 * llm.estimate_input(request) >= text_bytes(request) - len("modelm"), form


# Contents that are no text cost 1,500 tokens, more than a quarter of the strings here.
@given(content=JSON)
@example({"type": "image_url", "image_url": {"url": "x" * 108_000}})
@example([{"type": "image", "source": {"type": "base64", "data": ["a" * 108_000]}}])
@example([5, "a" * 108_000])
@example([{"type": "file", "file": {"file_data": "plain words " * 9_000}}])
@example({"file": {"source": {"source": {"content": "data:image/png;base64,AAAA" * 9_000}}}})
def test_parts_of_any_form_are_counted(content):
    for request in (
        {"messages": [{"role": "user", "content": content}]},
        {"input": content},
        {"contents": [{"parts": content}]},
        {"messages": [{"content": [{"toolResult": {"content": content}}]}]},
    ):
        assert 4 * llm.estimate_input(request) >= text_bytes(request) - int_bytes(content)


def int_bytes(value):
    """The bytes of whole numbers in a value: each may be the id of a token, whatever its length."""
    if isinstance(value, dict | list):
        return sum(map(int_bytes, value.values() if isinstance(value, dict) else value))
    return text_bytes(value) if type(value) is int else 0


def chat_part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def file_part(url):
    return {"type": "file", "file": {"filename": "f", "file_data": url}}


def responses_part(url):
    return {"type": "input_image", "image_url": url}


@given(
    text=st.text(min_size=1, max_size=200).filter(lambda text: 3 * text.count("\0") <= len(text)),
    times=st.integers(1, 40),
    media_type=st.sampled_from(["text/plain", "text/csv;charset=utf-8", "", "image/png"]),
    part=st.sampled_from([chat_part, file_part, responses_part]),
)
@example("a,b\n", 27_000, "text/csv", chat_part)
@example("a", 108_000, "application/octet-stream", file_part)
@example("\0" + "a" * 108_000, 1, "application/octet-stream", file_part)
def test_a_data_url_of_text_counts_as_its_text(text, times, media_type, part):
    data = (text * times).encode("utf-8", "replace")
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    request = {"messages": [{"role": "user", "content": [part(url)]}]}
    assert 4 * llm.estimate_input(request) >= len(data)


@given(data=st.binary(max_size=3_000), part=st.sampled_from([chat_part, file_part, responses_part]))
def test_a_data_url_of_anything_costs_an_attachment_or_its_text(data, part):
    encoded = base64.b64encode(b"\x89PNG" + data).decode()
    url = f"data:image/png;base64,{encoded}"
    request = {"messages": [{"role": "user", "content": [part(url)]}]}
    assert 1_500 <= llm.estimate_input(request) < 1_600
