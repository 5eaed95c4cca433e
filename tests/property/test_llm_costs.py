"""Whatever a stream has shown when it ends: its cost against an independent calculation."""

import json

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.llm import Estimate, StreamMeter, Usage

ESTIMATE = Estimate(1_000, 9_999)
TEXTS = st.lists(st.text("ab é日", max_size=12), max_size=6)
COUNTS = st.integers(0, 500)


def delta(text):
    return {"choices": [{"delta": {"content": text}, "finish_reason": None}], "usage": None}


def report(tokens, *, last):
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    choices = [{"delta": {}, "finish_reason": "stop"}] if last else []
    return {"choices": choices, "usage": usage}


def estimated(texts):
    return -(-sum(len(text.encode()) for text in texts) // 3)


@given(
    before=TEXTS,
    middle=st.none() | st.tuples(COUNTS, COUNTS),
    after=TEXTS,
    last=st.none() | st.tuples(COUNTS, COUNTS),
    trailing=TEXTS,
)
def test_a_cut_stream_costs_the_larger_of_known_and_delivered(
    before, middle, after, last, trailing
):
    chunks = [delta(text) for text in before]
    chunks += [] if middle is None else [report(middle, last=False)]
    chunks += [delta(text) for text in after]
    chunks += [] if last is None else [report(last, last=True)]
    chunks += [delta(text) for text in trailing]
    meter = StreamMeter(ESTIMATE)
    for chunk in chunks:
        meter.see(chunk)
    usage = meter.usage()
    if last is not None and not any(trailing):
        assert usage == Usage(*last)
        return
    known = last or middle
    floor = estimated([*before, *after, *trailing])
    assert usage.input_tokens == (ESTIMATE.input_tokens if known is None else known[0])
    assert usage.output_tokens == max(floor, 0 if known is None else known[1])


@given(texts=TEXTS, size=st.integers(1, 40), lines=st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_bytes_tell_the_same_as_the_events_they_carry(texts, size, lines):
    chunks = [*map(delta, texts), report((20, 9), last=True)]
    events, raw = StreamMeter(ESTIMATE), StreamMeter(ESTIMATE)
    data = b""
    for chunk in chunks[:-1]:
        events.see(chunk)
        data += b"data: " + json.dumps(chunk).encode() + lines
    for at in range(0, len(data), size):
        raw.see(data[at : at + size])
    assert raw.usage() == events.usage()
    raw.see(b"data: " + json.dumps(chunks[-1]).encode() + lines)
    assert raw.usage() == Usage(20, 9)
