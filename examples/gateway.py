"""An LLM gateway with tenants, projects and keys, in front of any provider with the OpenAI API.

    UPSTREAM_URL=http://127.0.0.1:9100/v1 uvicorn examples.gateway:app --port 9000
    python -m examples.gateway add-key acme search key-1

Limits are kept in ``gateway.db`` (SQLite); ``ZAEL_URL=dynamodb://my-stack`` keeps them in DynamoDB.
A key is written ``tenant.project.key``: a tenant is a namespace of its own, a project is the parent
whose limits its keys share, and a key is what a client sends as its API key.
"""

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from zae_limiter import (
    Limit,
    NamespaceNotFoundError,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    ValidationError,
    llm,
    web,
)

KEY_LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 20_000)]
PROJECT_LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 30_000)]


class Gateway:
    """The connections of the process, the limiter of each tenant, and how much calls reserve."""

    def __init__(self, repository: Repository, upstream: openai.AsyncOpenAI | None = None) -> None:
        self.repository = repository
        self.upstream = upstream
        # Most answers are shorter than max_tokens: reserve what nearly all of them needed.
        self.estimate = llm.Learned(percentile=0.95)
        self._limiters: dict[str, RateLimiter] = {}

    async def limiter(self, tenant: str) -> RateLimiter:
        if tenant not in self._limiters:
            await self.repository.register_namespace(tenant)
            scoped = await self.repository.namespace(tenant)
            await scoped.set_system_defaults(KEY_LIMITS, if_missing=True)
            self._limiters[tenant] = RateLimiter(repository=scoped)
        return self._limiters[tenant]

    async def has_key(self, tenant: str, project: str, key: str) -> bool:
        """Tell whether a key was added; a service of its own would keep secrets, not names."""
        try:
            await self.repository.get_namespace(tenant)
        except NamespaceNotFoundError:
            return False
        entity = await (await self.limiter(tenant)).get_entity(key)
        return entity is not None and entity.parent_id == project

    async def add_key(self, tenant: str, project: str, key: str) -> None:
        """Register a key of a project; both are limited from then on."""
        limiter = await self.limiter(tenant)
        await limiter.ensure_entity(project)
        await limiter.set_limits(project, PROJECT_LIMITS, if_missing=True)
        await limiter.create_entity(key, parent_id=project, cascade=True)


def open_repository() -> Any:
    return Repository.open(url=os.environ.get("ZAEL_URL", "sqlite:///gateway.db"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    upstream_url = os.environ.get("UPSTREAM_URL", "http://127.0.0.1:9100/v1")
    api_key = os.environ.get("UPSTREAM_KEY", "none")
    async with (
        open_repository() as repository,
        # Retries of the SDK would be requests that no limit has seen.
        openai.AsyncOpenAI(base_url=upstream_url, api_key=api_key, max_retries=0) as upstream,
    ):
        app.state.gateway = Gateway(repository, upstream)
        yield


app = FastAPI(title="LLM gateway", lifespan=lifespan)
app.add_middleware(web.AsgiMiddleware)  # an outage is a 503


def failure(status: int, message: str, kind: str, **headers: str) -> JSONResponse:
    """Answer as the OpenAI API does."""
    body = {"error": {"message": message, "type": kind, "code": kind, "param": None}}
    return JSONResponse(body, status, headers)


@app.exception_handler(RateLimitExceeded)
async def rejected(request: Request, error: RateLimitExceeded) -> JSONResponse:
    return failure(429, str(error), "rate_limit_exceeded", **error.headers("openai"))


@app.exception_handler(ValidationError)
async def unreadable(request: Request, error: ValidationError) -> JSONResponse:
    return failure(400, str(error), "invalid_request_error")


@app.exception_handler(openai.APIStatusError)
async def upstream_failed(request: Request, error: openai.APIStatusError) -> JSONResponse:
    seconds = llm.provider_wait(error)
    headers = {} if seconds is None else {"retry-after": str(math.ceil(seconds))}
    return JSONResponse({"error": error.body}, error.status_code, headers)


@app.exception_handler(openai.APIConnectionError)
async def upstream_gone(request: Request, error: openai.APIConnectionError) -> JSONResponse:
    return failure(502, "the provider does not answer", "upstream_error")


@app.post("/v1/chat/completions", response_model=None)
async def chat(request: Request) -> JSONResponse | StreamingResponse:
    create = request.app.state.gateway.upstream.chat.completions.create
    return await serve(request, create, "messages")


@app.post("/v1/embeddings", response_model=None)
async def embeddings(request: Request) -> JSONResponse | StreamingResponse:
    return await serve(request, request.app.state.gateway.upstream.embeddings.create, "input")


async def read_body(request: Request, needed: str) -> dict[str, Any]:
    """Return the body of a request that names a model and has the field that is needed."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or needed not in body:
        raise ValidationError("body", None, f"must be a JSON object with model and {needed}")
    return body


async def serve(request: Request, create: Any, needed: str) -> JSONResponse | StreamingResponse:
    """Reserve, ask the provider, and answer; what was used is charged however that ends."""
    parts = request.headers.get("authorization", "").removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return failure(401, "the API key is not known", "invalid_api_key")
    gateway, (tenant, _, key) = request.app.state.gateway, parts
    if not await gateway.has_key(*parts):
        return failure(401, "the API key is not known", "invalid_api_key")
    limiter = await gateway.limiter(tenant)
    body = await read_body(request, needed)
    model, estimate = body["model"], gateway.estimate
    async with llm.reserve(limiter, key, model, body, estimate=estimate) as call:
        headers = call.lease.headers("openai")
        # The provider decides about other fields, also about those that the SDK does not know.
        arguments = {name: body.pop(name) for name in ("model", needed)}
        if not body.pop("stream", False):
            response = await create(**arguments, extra_body=body)
            call.record(response)
            return JSONResponse(response.model_dump(mode="json"), headers=headers)
        options = body.pop("stream_options", None)
        wants_usage = isinstance(options, dict) and options.get("include_usage", False)
        body["stream_options"] = {"include_usage": True}
        # Opened inside the block, so that it holds its slot until it is read.
        chunks = call.stream(await create(**arguments, stream=True, extra_body=body))
        events = server_sent_events(chunks, wants_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def server_sent_events(chunks: Any, wants_usage: bool) -> AsyncIterator[str]:
    is_whole = False
    async for chunk in chunks:
        is_whole = is_whole or any(choice.finish_reason for choice in chunk.choices)
        if chunk.choices or wants_usage:
            yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
    if is_whole:  # a client can tell an answer that the provider has cut off
        yield "data: [DONE]\n\n"


async def main(command: str, *key: str) -> None:
    if command != "add-key" or len(key) != 3:
        raise SystemExit("usage: python -m examples.gateway add-key TENANT PROJECT KEY")
    async with open_repository() as repository:
        await Gateway(repository).add_key(*key)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or [""]))
