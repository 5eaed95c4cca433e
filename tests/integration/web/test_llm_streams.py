"""An LLM answer that is streamed through a web framework to a client that hangs up.

What was delivered is charged, however the framework ends the stream: it cancels the generator and
every await in its ``finally``, it drops a sync generator without closing it, or it returns early.
"""

import asyncio
import gc

import pytest
from django.core.handlers.asgi import ASGIHandler
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from flask import Flask, Response

from tests.integration.web import django_site
from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from tests.support.web_servers import asgi_server, hang_up, hang_up_sync, wsgi_server
from zae_limiter import llm
from zae_limiter.testing import outage

INPUT, ESTIMATE = 100, llm.Estimate(100, 5_000)


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def url(request, tmp_path):
    """Stores that answer at once, in another thread, and over a socket."""
    if request.param == "dynamodb":
        with temporary_table() as table:
            yield store_url(table, shared_endpoint())
    else:
        yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"


def chunk(number):
    return {"choices": [{"delta": {"content": f"w{number} "}, "finish_reason": None}]}


def words(text):
    return len(text.split())


def text_of(event):
    return event["choices"][0]["delta"]["content"]


class Upstream:
    """A provider's stream without end, that counts what it has delivered."""

    def __init__(self):
        self.delivered = 0
        self.is_closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0.001)
        return self.__next__()

    def __iter__(self):
        return self

    def __next__(self):
        self.delivered += 1
        return chunk(self.delivered)

    def close(self):
        self.is_closed = True


def by_generator(call, upstream):
    async def body():
        async for event in call.stream(upstream):
            yield text_of(event)

    return body()


def by_generator_that_settles_late(call, upstream):
    async def body():
        stream = call.stream(upstream)
        try:
            async for event in stream:
                yield text_of(event)
        finally:
            await stream.aclose()  # cancelled by the framework, again and again

    return body()


@pytest.mark.each_value_once
@pytest.mark.parametrize("make_body", [by_generator, by_generator_that_settles_late])
async def test_fastapi_cancels_the_generator(limiter, charged, make_body):
    app, upstream = FastAPI(), Upstream()

    @app.get("/")
    async def chat():
        async with llm.reserve(limiter, "key", "api", estimate=ESTIMATE, count=words) as call:
            return StreamingResponse(make_body(call, upstream))

    async with asgi_server(app) as port:
        await hang_up(port, "/", b"w5 ")
        await settled(charged)
    assert upstream.delivered >= 5
    assert await charged() == (1, INPUT + upstream.delivered)
    assert upstream.is_closed


async def test_fastapi_drops_a_sync_generator(sync_limiter, charged_sync):
    app, upstream = FastAPI(), Upstream()

    @app.get("/")
    def chat():
        with llm.reserve(sync_limiter, "key", "api", estimate=ESTIMATE, count=words) as call:
            stream = call.stream(upstream)
        return StreamingResponse(text_of(event) for event in stream)

    async def look():
        gc.collect()  # the framework leaves a cycle behind
        return await asyncio.to_thread(charged_sync)

    async with asgi_server(app) as port:
        await hang_up(port, "/", b"w5 ")
        await settled(look)
    assert charged_sync() == (1, INPUT + upstream.delivered)
    assert upstream.is_closed


async def test_django_cancels_the_generator(limiter, charged):
    upstream = Upstream()

    async def chat():
        async with llm.reserve(limiter, "key", "api", estimate=ESTIMATE, count=words) as call:
            return by_generator(call, upstream)

    django_site.configure()
    django_site.current.update(limiter=limiter, chat=chat)
    async with asgi_server(ASGIHandler()) as port:
        await hang_up(port, "/chat", b"w5 ", {"x-api-key": "client"})
        await settled(charged)
    assert await charged() == (1, INPUT + upstream.delivered)
    assert upstream.is_closed


def test_flask_closes_the_generator(sync_limiter, charged_sync):
    app, upstream = Flask("test"), Upstream()

    @app.get("/")
    def chat():
        with llm.reserve(sync_limiter, "key", "api", estimate=ESTIMATE, count=words) as call:
            return Response(map(text_of, call.stream(upstream)))

    async def look():
        gc.collect()
        return await asyncio.to_thread(charged_sync)

    with wsgi_server(app) as port:
        hang_up_sync(port, "/", b"w5 ")
        asyncio.run(settled(look))
    assert charged_sync() == (1, INPUT + upstream.delivered)
    assert upstream.is_closed


async def test_a_handler_that_is_cancelled_before_the_first_chunk_pays_the_input(limiter, charged):
    asked = asyncio.Event()

    class Silent(Upstream):
        async def __anext__(self):
            asked.set()
            await asyncio.Event().wait()

    async def handle():
        async with llm.reserve(limiter, "key", "api", estimate=ESTIMATE) as call:
            async for _ in call.stream(Silent()):
                pass

    task = asyncio.ensure_future(handle())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await charged() == (1, INPUT)


def test_ctrl_c_in_a_stream_costs_what_was_delivered(sync_limiter, charged_sync):
    class Interrupted(Upstream):
        def __next__(self):
            if self.delivered == 3:
                raise KeyboardInterrupt
            return super().__next__()

    upstream = Interrupted()
    with (
        pytest.raises(KeyboardInterrupt),
        llm.reserve(sync_limiter, "key", "api", estimate=ESTIMATE, count=words) as call,
    ):
        list(call.stream(upstream))
    assert charged_sync() == (1, INPUT + 3)
    assert upstream.is_closed


async def test_an_outage_that_admits_leaves_nothing_to_settle(limiter, charged):
    with outage(limiter):
        reserved = llm.reserve(limiter, "key", "api", estimate=ESTIMATE, on_unavailable="allow")
        async with reserved as call:
            call.record_usage(llm.Usage(1, 1))
    assert call.is_settled
    assert await charged() == (0, 0)


async def test_a_call_that_says_nothing_keeps_its_estimate(limiter, charged):
    async with llm.reserve(limiter, "key", "api", estimate=ESTIMATE):
        pass
    assert await charged() == (1, INPUT + 5_000)


async def test_a_call_that_was_never_sent_is_given_back(limiter, charged):
    async def handle():
        async with llm.reserve(limiter, "key", "api", estimate=ESTIMATE) as call:
            call.refund()
            raise LookupError("no provider is configured")

    with pytest.raises(LookupError):
        await handle()
    assert await charged() == (0, 0)


async def test_several_calls_of_a_block_add_up_and_teach_the_estimator(limiter, charged):
    learned = llm.Learned(1, min_samples=1)
    request = {"prompt": "abc", "max_tokens": 50}
    for _ in range(2):
        async with llm.reserve(limiter, "key", "api", request, estimate=learned) as call:
            call.record({"usage": {"prompt_tokens": 10, "completion_tokens": 7}})
            assert call.usage == llm.Usage(10, 7)
    assert call.estimate == llm.Estimate(3, 7)
    assert await charged() == (2, 34)


async def settled(look):
    async with asyncio.timeout(20):
        while (await look())[1] == INPUT + 5_000:  # noqa: ASYNC110 - settled without a word
            await asyncio.sleep(0.02)
