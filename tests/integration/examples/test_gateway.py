"""The gateway of the examples, in front of its stand-in provider: real servers, real SDK."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from tests.support.lazy import Lazy
from tests.support.web_servers import asgi_server, fetch, hang_up

gateway, stand_in_provider = Lazy("examples.gateway"), Lazy("examples.stand_in_provider")
openai = Lazy("openai")

QUESTION = [{"role": "user", "content": "one two three"}]
TPM, PROJECT_TPM = 20_000, 30_000


@pytest.fixture(params=["sqlite", "dynamodb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/gateway.db"
    else:
        with temporary_table() as table:
            yield store_url(table, shared_endpoint())


@pytest.fixture
def serving(url, monkeypatch):
    """Serve the gateway in front of a provider; add two keys of one tenant and one of another."""

    @asynccontextmanager
    async def start(provider_port):
        monkeypatch.setenv("UPSTREAM_URL", f"http://127.0.0.1:{provider_port}/v1")
        monkeypatch.setenv("ZAEL_URL", url)
        async with asgi_server(gateway.app) as port:
            for tenant, key in (("acme", "key-1"), ("acme", "key-2"), ("globex", "key-1")):
                await gateway.main("add-key", tenant, "search", key)
            yield port

    return start


@pytest.fixture
async def served(serving):
    """The port of the gateway, in front of the stand-in provider."""
    async with asgi_server(stand_in_provider.app) as provider, serving(provider) as port:
        yield port


def client(port, key="acme.search.key-1"):
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)


async def used(tenant="acme", entity="key-1", model="m"):
    """Tokens that were charged; a few have come back meanwhile."""
    limiter = await gateway.app.state.gateway.limiter(tenant)
    state = await limiter.repository.get_bucket(entity, model, "tpm")
    return 0 if state is None else state.total_consumed_milli // 1_000


async def test_an_answer_is_charged_to_key_and_project(served):
    async with client(served) as sdk:
        reply = await sdk.chat.completions.with_raw_response.create(
            model="m", messages=QUESTION, max_tokens=5
        )
    assert reply.parse().choices[0].message.content == "one two three one two"
    assert int(reply.headers["x-ratelimit-limit-tokens"]) == TPM
    assert (await used(), await used(entity="search")) == (8, 8)
    assert await used("globex") == 0


async def test_a_stream_is_charged_what_it_reports(served):
    async with client(served) as sdk:
        stream = await sdk.chat.completions.create(
            model="m", messages=QUESTION, max_tokens=5, stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(each.choices[0].delta.content or "" for each in chunks).split()[-1] == "two"
    assert all(each.choices for each in chunks), "usage is sent only to clients that ask for it"
    assert await used() == 8


async def test_embeddings_are_charged_their_input(served):
    async with client(served, "acme.search.key-2") as sdk:
        await sdk.embeddings.create(model="m", input="one two three", encoding_format="float")
    assert await used(entity="key-2") == 3


async def test_a_client_that_hangs_up_is_charged_what_it_was_sent(served):
    body = {"model": "m", "messages": QUESTION, "max_tokens": 1_000, "stream": True}
    headers = {"authorization": "Bearer acme.search.key-1"}
    await hang_up(served, "/v1/chat/completions", b"three", headers, json.dumps(body).encode())
    reserved = await used()
    async with asyncio.timeout(20):
        while (charged := await used()) == reserved > 1_000:  # noqa: ASYNC110 - without a word
            await asyncio.sleep(0.01)
    assert 3 + 3 <= charged < 100


async def test_keys_of_a_project_share_its_limits(served):
    request = {"model": "m", "messages": QUESTION, "max_tokens": 15_500}
    async with client(served) as one, client(served, "acme.search.key-2") as other:
        sending = [each.chat.completions.create(**request, stream=True) for each in (one, other)]
        results = await asyncio.gather(*sending, return_exceptions=True)
        for result in results:
            if not isinstance(result, BaseException):
                await result.close()
    rejected = [each for each in results if isinstance(each, openai.RateLimitError)]
    assert len(rejected) == 1, results
    assert "search" in rejected[0].message
    assert rejected[0].response.headers["retry-after"]


async def test_an_unknown_key_is_refused(served):
    for key in ("acme.search.key-9", "acme.other.key-1", "initech.search.key-1", "nothing"):
        async with client(served, key) as sdk:
            with pytest.raises(openai.AuthenticationError):
                await sdk.chat.completions.create(model="m", messages=QUESTION)


async def test_a_provider_that_is_gone_is_a_502_and_costs_the_input(serving):
    body = json.dumps({"model": "m", "messages": QUESTION, "max_tokens": 500}).encode()
    headers = {"authorization": "Bearer acme.search.key-1"}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen: connections are refused
        async with serving(silent.getsockname()[1]) as port:
            reply = await fetch(port, "/v1/chat/completions", headers, body)
            assert reply.status == 502
            assert 0 < await used() < 50


async def test_a_refusal_of_the_provider_says_how_long_to_wait(served):
    async with client(served) as sdk:
        with pytest.raises(openai.RateLimitError) as refused:
            await sdk.chat.completions.create(model="refuses", messages=QUESTION, max_tokens=500)
        assert refused.value.response.headers["retry-after"] == "3"
        with pytest.raises(openai.RateLimitError, match="key-1") as paused:
            await sdk.chat.completions.create(model="refuses", messages=QUESTION, max_tokens=500)
        assert 1 <= int(paused.value.response.headers["retry-after"]) <= 3
        with pytest.raises(openai.InternalServerError) as failed:
            await sdk.chat.completions.create(model="fails", messages=QUESTION, max_tokens=500)
        assert "retry-after" not in failed.value.response.headers


@pytest.mark.each_value_once
@pytest.mark.parametrize(("model", "tokens"), [("cuts", range(3, 50)), ("silent", range(5, 50))])
async def test_a_stream_without_its_end_or_usage_is_charged_its_text(served, model, tokens):
    async with client(served) as sdk:
        stream = await sdk.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=5, stream=True
        )
        async for _ in stream:
            pass
    assert await used(model=model) in tokens


@pytest.mark.each_value_once
@pytest.mark.parametrize(("model", "is_whole"), [("m", True), ("silent", True), ("cuts", False)])
async def test_only_a_whole_stream_ends_with_its_last_event(served, model, is_whole):
    body = {"model": model, "messages": QUESTION, "max_tokens": 5, "stream": True}
    headers = {"authorization": "Bearer acme.search.key-1"}
    reply = await fetch(served, "/v1/chat/completions", headers, json.dumps(body).encode())
    assert reply.status == 200
    assert reply.body.endswith(b"data: [DONE]\n\n") == is_whole


@pytest.mark.each_value_once
@pytest.mark.parametrize(
    "body",
    [b"nonsense", b"[]", b"[" * 50_000, b"{}", b'{"model": "m"}', b'{"model": 5, "messages": []}',
     b'{"model": "a#b", "messages": []}'],
)  # fmt: skip
async def test_a_request_that_cannot_be_read_is_a_400(served, body):
    headers = {"authorization": "Bearer acme.search.key-1"}
    reply = await fetch(served, "/v1/chat/completions", headers, body)
    assert reply.status == 400
    assert json.loads(reply.body)["error"]["code"] == "invalid_request_error"


async def test_parts_of_messages_and_unknown_fields_are_passed_on(served):
    parts = [{"type": "text", "text": "one two"}]
    messages = [{"role": "user", "content": parts}]
    async with client(served) as sdk:
        reply = await sdk.chat.completions.create(
            model="m", messages=messages, extra_body={"unheard_of": 5}
        )
    assert reply.choices[0].message.content == "one two"
    assert await used() == 4
