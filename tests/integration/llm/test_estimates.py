"""Requests as the real SDKs send them: an estimate sees every letter that leaves the machine."""

import base64
import json
import typing

import pydantic
import pytest

from tests.integration.llm.sdks import SYNC_SDKS
from tests.support.lazy import Lazy
from zae_limiter import llm

genai, image = Lazy("google.genai"), Lazy("PIL.Image")

LONG = "a,b\n" * 5_000  # no space anywhere
PNG = b"\x89PNG\r\n" + b"\0\xff" * 50_000
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
SETTINGS = {"model", "max_tokens", "max_output_tokens", "stream", "generationConfig"}


def text_bytes(value):
    if isinstance(value, dict):
        return sum(len(name.encode()) + text_bytes(inner) for name, inner in value.items())
    if isinstance(value, list):
        return sum(map(text_bytes, value))
    return len((value if isinstance(value, str) else json.dumps(value)).encode())


def sent_bytes(provider):
    """The bytes of all names and texts of the last request, as it arrived; settings aside."""
    _, body, _ = provider.requests[-1]
    return text_bytes({name: value for name, value in body.items() if name not in SETTINGS})


class Weather(pydantic.BaseModel):
    """The weather of one city."""

    city: str
    conditions: typing.Literal["sun", "rain"]


def forecast(city: str) -> str:
    """Return the weather of a city, in a few words."""
    return city


TOOL_CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "f", "arguments": json.dumps({"x": LONG})},
}
SCHEMA = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(200)}}


def openai_chat(client):
    earlier = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
    request = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "system", "content": LONG},
            earlier.choices[0].message,  # an object of the SDK, as people send it back
            {"role": "assistant", "tool_calls": [TOOL_CALL]},
            {"role": "tool", "tool_call_id": "1", "content": LONG},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    }
    client.chat.completions.create(**request)
    return request


def openai_schema(client):
    """A class instead of a schema. The answer is no JSON, so that the call fails after it."""
    request = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
    request["response_format"] = Weather
    with pytest.raises(pydantic.ValidationError):
        client.chat.completions.parse(**request)
    return request


def openai_responses(client):
    earlier = client.responses.create(model="m", input="a")
    call = {"type": "function_call", "name": "f", "call_id": "1", "arguments": LONG}
    output = {"type": "function_call_output", "call_id": "1", "output": LONG}
    request = {
        "model": "m",
        "instructions": LONG,
        "input": [*earlier.output, call, output],
        "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
    }
    client.responses.create(**request)
    return request


def anthropic(client):
    first = [{"role": "user", "content": "a"}]
    earlier = client.messages.create(model="m", max_tokens=5, messages=first)
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"x" * 9_000: {"y": [1, None]}}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": LONG}
    request = {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": LONG}],
        "messages": [
            *first,
            {"role": "assistant", "content": [*earlier.content, use]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
    }
    client.messages.create(**request)
    return request


def gemini(client):
    types = genai.types
    call = types.FunctionCall(name="f", args={"x" * 9_000: LONG})
    parts = [types.Part(text=LONG), types.Part(function_call=call)]
    config = types.GenerateContentConfig(
        max_output_tokens=5,
        system_instruction=LONG,
        response_mime_type="application/json",
        response_schema=Weather,
        tools=[forecast],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    contents = [types.Content(role="user", parts=parts)]
    request = {"model": "m", "contents": contents, "config": config}
    client.models.generate_content(**request)
    return request


def bedrock(client):
    use = {"toolUse": {"toolUseId": "1", "name": "f", "input": {"x" * 9_000: LONG}}}
    result = {"toolResult": {"toolUseId": "1", "content": [{"json": SCHEMA}]}}
    request = {
        "modelId": "m",
        "messages": [
            {"role": "user", "content": [{"text": LONG}]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}}}]},
    }
    client.converse(**request)
    return request


@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("openai-chat", openai_chat),
        ("openai-chat", openai_schema),
        ("openai-responses", openai_responses),
        ("anthropic", anthropic),
        ("gemini", gemini),
        ("bedrock", bedrock),
    ],
)
def test_an_estimate_sees_every_letter_that_was_sent(name, send, provider):
    with SYNC_SDKS[name].sync_client(provider) as client:
        request = send(client)
    sent = sent_bytes(provider)
    assert sent > 15_000
    tokens = llm.estimate_input(request)
    assert 4 * tokens >= sent
    assert 2 * tokens <= sent, "a quarter to a half: more would reject what fits"


def image_for_chat(client):
    part = {"type": "image_url", "image_url": {"url": URL}}
    request = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    client.chat.completions.create(**request)
    return request


def image_for_responses(client):
    part = {"type": "input_image", "image_url": URL, "detail": "auto"}
    request = {"model": "m", "input": [{"role": "user", "content": [part]}]}
    client.responses.create(**request)
    return request


def file_for_anthropic(client, path):
    path.write_bytes(PNG)
    source = {"type": "base64", "media_type": "image/png", "data": path}
    content = [{"type": "image", "source": source}]
    request = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": content}]}
    client.messages.create(**request)
    return request


def images_for_gemini(client):
    part = genai.types.Part.from_bytes(data=PNG, mime_type="image/png")
    request = {"model": "m", "contents": [part]}
    client.models.generate_content(**request)
    return request


def drawn_image_for_gemini(client):
    request = {"model": "m", "contents": [image.new("RGB", (64, 64))]}
    client.models.generate_content(**request)
    return request


def image_for_bedrock(client):
    part = {"image": {"format": "png", "source": {"bytes": PNG}}}
    request = {"modelId": "m", "messages": [{"role": "user", "content": [part]}]}
    client.converse(**request)
    return request


@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("openai-chat", image_for_chat),
        ("openai-responses", image_for_responses),
        ("anthropic", file_for_anthropic),
        ("gemini", images_for_gemini),
        ("gemini", drawn_image_for_gemini),
        ("bedrock", image_for_bedrock),
    ],
)
def test_an_image_costs_what_images_cost(name, send, provider, tmp_path):
    with SYNC_SDKS[name].sync_client(provider) as client:
        request = send(client, tmp_path / "a.png") if name == "anthropic" else send(client)
    assert 1_500 <= llm.estimate_input(request) < 1_560
