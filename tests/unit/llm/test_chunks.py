"""What the chunks of a stream tell, in the formats of all providers."""

import json

import pytest

from zae_limiter.llm import Estimate, StreamMeter, Usage


def chat(text=None, finish=None, usage=None, **delta):
    choices = [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": finish}]
    return {"choices": [] if usage and not text else choices, "usage": usage}


def words(text):
    return len(text.split())


CHAT = [
    chat("one two "),
    chat("three"),
    chat(finish="stop"),
    chat(usage={"prompt_tokens": 20, "completion_tokens": 9}),
]
RESPONSES = [
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_text.delta", "delta": "one two "},
    {"type": "response.output_text.delta", "delta": "three"},
    {"type": "response.output_text.done", "text": "one two three"},
    {
        "type": "response.completed",
        "response": {"usage": {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}},
    },
]
ANTHROPIC = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}},
    {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "one two "}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "three"}},
    {"type": "content_block_stop"},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
BEDROCK = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"delta": {"text": "one two "}, "contentBlockIndex": 0}},
    {"contentBlockDelta": {"delta": {"text": "three"}, "contentBlockIndex": 0}},
    {"messageStop": {"stopReason": "end_turn"}},
    {"metadata": {"usage": {"inputTokens": 20, "outputTokens": 9, "totalTokens": 29}}},
]
GEMINI = [
    {
        "candidates": [{"content": {"parts": [{"text": "one two "}]}}],
        "usageMetadata": {"promptTokenCount": 20, "totalTokenCount": 20},
    },
    {"candidates": [{"content": {"parts": [{"text": "three"}]}}], "usageMetadata": {}},
    {
        "candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 9},
    },
]
STREAMS = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "bedrock": BEDROCK,
    "gemini": GEMINI,
}


def seen(chunks, count=words):
    meter = StreamMeter(Estimate(100, 500), count)
    for chunk in chunks:
        meter.see(chunk)
    return meter


@pytest.mark.parametrize("provider", STREAMS)
def test_a_complete_stream_costs_what_was_reported(provider):
    meter = seen(STREAMS[provider])
    assert meter.final
    assert meter.usage() == Usage(20, 9)


@pytest.mark.parametrize("provider", STREAMS)
def test_a_stream_cut_off_anywhere_costs_the_larger_of_reported_and_delivered(provider):
    chunks = STREAMS[provider]
    reports_input_first = provider in ("anthropic", "gemini")
    for length in range(len(chunks)):
        meter = seen(chunks[:length])
        usage = meter.usage()
        if meter.final:  # all that follows is a farewell
            assert usage == Usage(20, 9)
            continue
        text = json.dumps(chunks[:length])
        delivered = 2 * ("one two " in text) + ("three" in text.replace("one two three", ""))
        assert usage.input_tokens == (20 if reports_input_first and length else 100)
        assert delivered <= usage.output_tokens <= max(1, delivered)


def test_without_reported_usage_a_complete_answer_costs_its_text():
    meter = seen(CHAT[:-1])
    assert not meter.final
    assert meter.usage() == Usage(100, 3)


def test_text_after_a_report_makes_it_provisional_again():
    usage = {"prompt_tokens": 20, "completion_tokens": 2}
    chunks = [chat("one two", finish="stop", usage=usage), chat("three four five")]
    assert seen(chunks[:1]).final
    meter = seen(chunks)
    assert not meter.final
    assert meter.usage() == Usage(20, 5)


def test_counts_so_far_are_not_added_up_and_zeros_between_are_ignored():
    counts = [(20, 2), (0, 0), (20, 5)]
    chunks = [
        {"candidates": [], "usageMetadata": {"promptTokenCount": p, "candidatesTokenCount": c}}
        for p, c in counts
    ]
    assert seen(chunks).usage() == Usage(20, 5)


@pytest.mark.parametrize(
    ("chunk", "tokens"),
    [
        (chat(refusal="no no"), 2),
        (chat(reasoning_content="hm hm hm"), 3),
        (chat(tool_calls=[{"function": {"name": "f", "arguments": "a b"}}]), 3),
        ({"choices": [{"text": "one two"}]}, 2),
        ({"type": "chunk", "chunk": chat("one two")}, 2),
        ({"type": "content.delta", "delta": "the helper repeats its chunk"}, 0),
        ({"type": "response.output_audio.delta", "delta": "AAAA BBBB"}, 0),
        ({"type": "response.function_call_arguments.delta", "delta": "a b"}, 2),
        ({"type": "content_block_delta", "delta": {"partial_json": "a b"}}, 2),
        ({"type": "content_block_delta", "delta": {"thinking": "a b"}}, 2),
        ({"type": "text", "text": "the helper repeats its event"}, 0),
        ({"contentBlockDelta": {"delta": {"toolUse": {"input": "a b"}}}}, 2),
        ({"contentBlockDelta": {"delta": {"reasoningContent": {"text": "a b"}}}}, 2),
        ({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}, 1),
        ({"candidates": [{"content": None}]}, 0),
        ("one two", 2),
        (None, 0),
        (17, 0),
    ],
)
def test_all_that_a_model_writes_is_delivered_text(chunk, tokens):
    assert seen([chunk]).delivered_tokens == tokens


def test_small_chunks_are_not_rounded_up_one_by_one():
    assert seen([chat("a")] * 9, count=None).delivered_tokens == 3


def sse(events, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + end


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_bytes_of_server_sent_events_are_read_however_they_are_cut(size):
    data = sse(CHAT)
    meter = seen([data[at : at + size] for at in range(0, len(data), size)])
    assert meter.final
    assert meter.usage() == Usage(20, 9)


@pytest.mark.parametrize("size", [1, 2, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_each_line_end_of_server_sent_events_ends_a_line(line_end, size):
    data = sse(CHAT).replace(b"\n", line_end)
    meter = seen([data[at : at + size] for at in range(0, len(data), size)])
    assert meter.final
    assert meter.usage() == Usage(20, 9)


def test_a_last_event_without_a_line_end_counts():
    data = sse(CHAT, end=b"").rstrip(b"\n")
    cut_off = seen([data[:-1]])
    assert not cut_off.final
    assert cut_off.usage() == Usage(100, 3)
    whole = seen([data])
    assert whole.usage() == Usage(20, 9)
    assert whole.final
    whole.see(b"\n\ndata: [DONE]")
    assert whole.usage() == Usage(20, 9)


def test_bytes_that_are_no_events_are_passed_over():
    meter = seen([b": comment\n", b"event: x\r\n", b"data: {broken\n", b"data: 3\n", b"\xff" * 9])
    assert meter.usage() == Usage(100, 0)
    meter.see(b"x" * 5_000_000)
    meter.see(b"\n" + sse(CHAT))
    assert meter.final
