"""A provider that answers without a model: every answer repeats the words of the question.

    uvicorn examples.stand_in_provider:app --port 9100

It speaks enough of two APIs for clients to be tried: chat and embeddings of OpenAI, messages of
Anthropic; chat and messages also as streams. A token is a word. The name of the model says how a
call ends: ``refuses`` is a 429 that asks to wait, ``fails`` a 500, ``cuts`` breaks a stream off
after three words, ``silent`` reports no usage of a chat; every other model answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

app = FastAPI(title="Stand-in provider")
DELAY_S = 0.02  # between two words
CUT_AFTER = 3  # words


def text_of(content: Any) -> str:
    """Return the text of a message, which may consist of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or ())


def usage(question: list[str], answer: list[str]) -> dict[str, int]:
    return {
        "prompt_tokens": len(question),
        "completion_tokens": len(answer),
        "total_tokens": len(question) + len(answer),
    }


def head(kind: str) -> dict[str, Any]:
    return {"id": "stand-in", "object": kind, "created": 0, "model": "stand-in"}


class Refused(Exception):
    """A call that a model does not answer."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


FAILURES: dict[str, tuple[int, dict[str, str]]] = {
    "refuses": (429, {"retry-after": "3"}),
    "fails": (500, {}),
}


@app.exception_handler(Refused)
async def refused(request: Request, error: Refused) -> JSONResponse:
    body = {"message": f"the stand-in answers with {error.status}", "type": "stand_in"}
    return JSONResponse({"type": "error", "error": body}, error.status, error.headers)


async def read(request: Request) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the body of a request about messages, the words of its question, and the answer."""
    body = await request.json()
    if body["model"] in FAILURES:
        raise Refused(*FAILURES[body["model"]])
    question = " ".join(text_of(message.get("content")) for message in body["messages"]).split()
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    return body, question, (question * 1_000)[: cap or len(question)]


@app.post("/v1/chat/completions", response_model=None)
async def chat(request: Request) -> JSONResponse | StreamingResponse:
    body, question, answer = await read(request)
    used = None if body["model"] == "silent" else usage(question, answer)
    if body.get("stream"):
        events = stream(answer, used, is_cut=body["model"] == "cuts")
        return StreamingResponse(events, media_type="text/event-stream")
    message = {"role": "assistant", "content": " ".join(answer)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse({**head("chat.completion"), "choices": [choice], "usage": used})


async def stream(
    answer: list[str], used: dict[str, int] | None, *, is_cut: bool
) -> AsyncIterator[str]:
    for word in answer[:CUT_AFTER] if is_cut else answer:
        yield event([{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}])
        await asyncio.sleep(DELAY_S)
    if is_cut:
        return
    yield event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if used is not None:
        yield event([], used)
    yield "data: [DONE]\n\n"


def event(choices: list[Any], used: dict[str, int] | None = None) -> str:
    chunk = {**head("chat.completion.chunk"), "choices": choices, "usage": used}
    return f"data: {json.dumps(chunk)}\n\n"


@app.post("/v1/embeddings")
async def embeddings(request: Request) -> dict[str, Any]:
    body = await request.json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    words = len(" ".join(texts).split())
    vectors = [
        {"object": "embedding", "index": index, "embedding": [float(len(text))]}
        for index, text in enumerate(texts)
    ]
    used = {"prompt_tokens": words, "total_tokens": words}
    return {"object": "list", "data": vectors, "model": "stand-in", "usage": used}


@app.post("/v1/messages", response_model=None)
async def messages(request: Request) -> JSONResponse | StreamingResponse:
    body, question, answer = await read(request)
    message = {"id": "stand-in", "type": "message", "role": "assistant", "model": "stand-in"}
    if body.get("stream"):
        began = {**message, "content": [], "usage": {"input_tokens": len(question)}}
        events = message_events(began, answer, is_cut=body["model"] == "cuts")
        return StreamingResponse(events, media_type="text/event-stream")
    used = {"input_tokens": len(question), "output_tokens": len(answer)}
    content = [{"type": "text", "text": " ".join(answer)}]
    whole = {**message, "content": content, "stop_reason": "end_turn"}
    return JSONResponse({**whole, "usage": used})


async def message_events(
    began: dict[str, Any], answer: list[str], *, is_cut: bool
) -> AsyncIterator[str]:
    yield message_event("message_start", message=began)
    yield message_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in answer[:CUT_AFTER] if is_cut else answer:
        delta = {"type": "text_delta", "text": f"{word} "}
        yield message_event("content_block_delta", index=0, delta=delta)
        await asyncio.sleep(DELAY_S)
    if is_cut:
        return
    yield message_event("content_block_stop", index=0)
    ended = {"stop_reason": "end_turn"}
    yield message_event("message_delta", delta=ended, usage={"output_tokens": len(answer)})
    yield message_event("message_stop")


def message_event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
