"""A provider that answers without a model: every answer repeats the words of the question.

    uvicorn examples.stand_in_provider:app --port 9100

It speaks enough of the OpenAI API for the gateway to be tried: chat (also streamed) and embeddings.
A token is a word.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

app = FastAPI(title="Stand-in provider")
DELAY_S = 0.02  # between two words


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


@app.post("/v1/chat/completions", response_model=None)
async def chat(request: Request) -> JSONResponse | StreamingResponse:
    body = await request.json()
    question = " ".join(text_of(message.get("content")) for message in body["messages"]).split()
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    answer = (question * 1_000)[: cap or len(question)]
    if body.get("stream"):
        events = stream(question, answer)
        return StreamingResponse(events, media_type="text/event-stream")
    message = {"role": "assistant", "content": " ".join(answer)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {**head("chat.completion"), "choices": [choice], "usage": usage(question, answer)}
    )


async def stream(question: list[str], answer: list[str]) -> AsyncIterator[str]:
    for word in answer:
        yield event([{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}])
        await asyncio.sleep(DELAY_S)
    yield event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield event([], usage(question, answer))
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
