"""Real SDKs against a local provider: the ledger is exact wherever usage was reported."""

import asyncio
import gc
from decimal import Decimal

import pytest
import requests

from tests.integration.llm.sdks import ASYNC_SDKS, SYNC_SDKS
from tests.support.lazy import Lazy
from tests.support.providers import Answer
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, ValidationError, llm
from zae_limiter.testing import outage

httpx2, openai = Lazy("httpx2"), Lazy("openai")

# The estimator of these tests counts the chunks of the provider exactly: each is a word.
INPUT = 50


def words(text):
    return len(text.split())


def reserve(limiter, **options):
    estimate = llm.Estimate(INPUT, 500)
    return llm.reserve(limiter, "key", "model", estimate=estimate, count=words, **options)


@pytest.fixture(params=ASYNC_SDKS)
def sdk(request):
    return ASYNC_SDKS[request.param]


@pytest.fixture(params=SYNC_SDKS)
def sync_sdk(request):
    return SYNC_SDKS[request.param]


def input_of(sdk, delivered):
    """What is known of the input in the middle: two providers report it at once."""
    reports_at_once = type(sdk).__name__ in ("Anthropic", "Gemini")
    return 20 if reports_at_once and delivered else INPUT


# --- whole answers


async def test_a_whole_answer_costs_what_it_reports(sdk, provider, limiter, ledger):
    provider.answers.append(Answer(cached_tokens=7))
    async with sdk.client(provider) as client, reserve(limiter) as call:
        assert await ledger() == (1, INPUT + 500)
        usage = call.record(await sdk.whole(client))
    assert usage == llm.Usage(20, 9, cached_tokens=7)
    assert await ledger() == (1, 29)


async def test_an_answer_and_a_stream_cost_the_price_of_their_model(
    sdk, provider, limiter, tmp_path
):
    file = tmp_path / "prices.yaml"
    file.write_text("models: {model: {input: 3, cached_input: 0.3, output: 15}}")
    await limiter.set_limits("key", [Limit.budget("usd", 1, per="day")], "model")
    prices = llm.Prices.load(file).of("model")
    provider.answers += [Answer(cached_tokens=7), Answer(cached_tokens=7)]
    async with sdk.client(provider) as client:
        async with reserve(limiter, prices=prices, meter={}) as call:
            call.record(await sdk.whole(client))
        async with reserve(limiter, prices=prices, meter={}) as streamed:
            async for _ in streamed.stream(await sdk.stream(client)):
                pass
    cost = Decimal("0.0001761")  # 13 tokens of input, 7 cached ones, 9 of output
    assert call.usage.cost.amount == streamed.usage.cost.amount == cost
    assert (await limiter.available("key", "model"))["usd"] == 1 - 2 * cost


def test_a_whole_answer_costs_what_it_reports_sync(sync_sdk, provider, sync_limiter, sync_ledger):
    provider.answers.append(Answer(cached_tokens=7))
    with sync_sdk.sync_client(provider) as client, reserve(sync_limiter) as call:
        assert call.record(sync_sdk.whole(client)) == llm.Usage(20, 9, cached_tokens=7)
    assert sync_ledger() == (1, 29)


async def test_embeddings_cost_their_input(provider, limiter, ledger):
    async with ASYNC_SDKS["openai-chat"].client(provider) as client, reserve(limiter) as call:
        call.record(await client.embeddings.create(model="m", input="hello"))
    assert await ledger() == (1, 20)


async def test_a_raw_response_is_parsed_and_its_retries_count(provider, limiter, ledger):
    provider.answers += [Answer(status=500), Answer(status=429, headers={"retry-after-ms": "1"})]
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider, retries=2) as client, reserve(limiter) as call:
        call.record(await client.chat.completions.with_raw_response.create(**sdk.request))
    assert await ledger() == (3, 29)


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
def test_a_streaming_response_is_read_by_a_sync_client(name, provider, sync_limiter, sync_ledger):
    sdk = SYNC_SDKS[name]
    with (
        sdk.sync_client(provider) as client,
        reserve(sync_limiter) as call,
        resource_of(client, name).with_streaming_response.create(**sdk.request) as response,
    ):
        assert call.record(response) == llm.Usage(20, 9)
    assert sync_ledger() == (1, 29)


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
async def test_a_streaming_response_of_an_async_client_is_parsed_by_the_caller(
    name, provider, limiter, ledger
):
    sdk = ASYNC_SDKS[name]
    async with (
        sdk.client(provider) as client,
        reserve(limiter) as call,
        resource_of(client, name).with_streaming_response.create(**sdk.request) as response,
    ):
        call.record(await response.parse())
    assert await ledger() == (1, 29)


async def test_a_streaming_response_that_was_not_parsed_is_refused(provider, limiter, ledger):
    sdk = ASYNC_SDKS["openai-chat"]

    async def handle():
        async with (
            sdk.client(provider) as client,
            reserve(limiter) as call,
            client.chat.completions.with_streaming_response.create(**sdk.request) as response,
        ):
            with pytest.raises(ValidationError, match=r"response\.iter_bytes\(\)"):
                call.stream(response)
            call.record(response)

    with pytest.raises(ValidationError, match=r"await response\.parse\(\)"):
        await handle()
    assert await ledger() == (1, INPUT + 500), "a mistake of the caller is not free"


async def test_bytes_of_a_streaming_response_are_read_as_a_stream(provider, limiter, ledger):
    sdk = ASYNC_SDKS["openai-chat"]
    request = {**sdk.request, "stream": True, "stream_options": {"include_usage": True}}
    async with (
        sdk.client(provider) as client,
        reserve(limiter) as call,
        client.chat.completions.with_streaming_response.create(**request) as response,
    ):
        assert [chunk async for chunk in call.stream(response.iter_bytes())]
    assert await ledger() == (1, 29)


async def test_a_stream_is_not_recorded(sdk, provider, limiter, ledger):
    async def handle():
        async with sdk.client(provider) as client, reserve(limiter) as call:
            call.record(await sdk.stream(client))

    with pytest.raises(ValidationError, match=r"call\.stream"):
        await handle()
    assert await ledger() == (1, INPUT + 500)


def test_a_stream_is_not_recorded_sync(sync_sdk, provider, sync_limiter):
    with (
        pytest.raises(ValidationError, match=r"call\.stream"),
        sync_sdk.sync_client(provider) as client,
        reserve(sync_limiter) as call,
    ):
        call.record(sync_sdk.stream(client))


def resource_of(client, name):
    """What of a client makes the calls of one SDK."""
    if name == "anthropic":
        return client.messages
    return client.responses if name == "openai-responses" else client.chat.completions


async def test_an_answer_without_usage_costs_its_text(provider, limiter, ledger):
    provider.answers.append(Answer(reports_usage=False))
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider) as client, reserve(limiter) as call:
        assert call.record(await sdk.whole(client)) is None
    assert await ledger() == (1, INPUT + 3)


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
async def test_a_hook_counts_the_retries_that_parsed_answers_hide(name, provider, limiter, ledger):
    provider.answers += [Answer(status=500), Answer(status=500)]
    sdk = ASYNC_SDKS[name]
    async with sdk.client(provider, retries=2) as plain:
        http_client = openai.DefaultAsyncHttpxClient(event_hooks={"request": [llm.count_request]})
        client = plain.with_options(http_client=http_client)
        async with http_client, reserve(limiter) as call:
            call.record(await sdk.whole(client))
    assert len(provider.requests) == 3
    assert await ledger() == (3, 29)


def test_retries_of_boto3_count(provider, sync_limiter, sync_ledger):
    provider.answers.append(Answer(status=429))
    sdk = SYNC_SDKS["bedrock"]
    with sdk.sync_client(provider, retries=1) as client, reserve(sync_limiter) as call:
        call.record(sdk.whole(client))
    assert sync_ledger() == (2, 29)


# --- errors


async def test_a_call_that_fails_costs_its_input(sdk, provider, limiter, ledger):
    provider.answers.append(Answer(status=500))
    async with sdk.client(provider) as client:
        with pytest.raises(Exception, match=r"500|refused"):
            async with reserve(limiter) as call:
                call.record(await sdk.whole(client))
    assert await ledger() == (1, INPUT)


def test_a_refused_call_costs_its_requests_if_so_wanted(
    sync_sdk, provider, sync_limiter, sync_ledger
):
    provider.answers.append(Answer(status=429, headers={"retry-after": "7"}))
    with (
        sync_sdk.sync_client(provider) as client,
        pytest.raises(Exception, match=r"429|refused"),
        reserve(sync_limiter, charge_refused=False) as call,
    ):
        call.record(sync_sdk.whole(client))
    assert sync_ledger() == (1, 0)
    assert call.provider_wait == 7


# What each SDK's provider says, and for how long that pauses.
REFUSALS = [
    ({"retry-after": "7"}, 7),
    ({"retry-after-ms": "90000", "retry-after": "9"}, 90),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
    ({"retry-after": "4000"}, 600),  # more than a bucket can be paused
]


@pytest.mark.parametrize(("headers", "seconds"), REFUSALS, ids=repr)
async def test_a_refusal_pauses_the_bucket_for_all_workers(headers, seconds, provider, limiter):
    await refused(provider, limiter, headers)
    other = RateLimiter(limiter.repository)
    with pytest.raises(RateLimitExceeded, match="paused") as caught:
        async with reserve(other):
            pass
    assert seconds - 5 < caught.value.retry_after_seconds <= seconds
    [event] = await limiter.get_audit_events("key")
    assert (event.action, event.principal) == ("bucket_paused", "provider feedback")


def test_a_refusal_pauses_the_bucket_with_every_sdk(sync_sdk, provider, sync_limiter):
    provider.answers.append(Answer(status=429, headers={"retry-after": "30"}))
    with (
        sync_sdk.sync_client(provider) as client,
        pytest.raises(Exception, match=r"429|refused"),
        reserve(sync_limiter) as call,
    ):
        call.record(sync_sdk.whole(client))
    assert 25 < sync_limiter.time_until_available("key", "model", {"rpm": 1}) <= 30


@pytest.mark.parametrize(
    "retry_after",
    [
        "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "9" * 9_000 + "s",
    ],
    ids=["never", "late", "long"],
)
def test_an_absurd_wait_hides_no_error(retry_after, sync_sdk, provider, sync_limiter, sync_ledger):
    provider.answers.append(Answer(status=429, headers={"retry-after": retry_after}))
    with (
        sync_sdk.sync_client(provider) as client,
        pytest.raises(Exception, match=r"429|refused"),
        reserve(sync_limiter) as call,
    ):
        call.record(sync_sdk.whole(client))
    assert call.is_settled
    assert sync_ledger() == (1, INPUT)


def test_a_refusal_that_requests_has_raised_pauses_the_bucket(provider, sync_limiter):
    provider.answers.append(Answer(status=429, headers={"retry-after": "30"}))
    url = f"{provider.url}/v1/chat/completions"
    with pytest.raises(requests.HTTPError), reserve(sync_limiter) as call:
        requests.post(url, json={}, timeout=20).raise_for_status()
    assert call.provider_wait == 30
    assert 25 < sync_limiter.time_until_available("key", "model", {"rpm": 1}) <= 30


async def test_many_refusals_at_once_are_one_pause(provider, limiter):
    await asyncio.gather(*[refused(provider, limiter, {"retry-after": "30"}) for _ in range(5)])
    assert len(await limiter.get_audit_events("key")) == 1
    await limiter.pause("key", "model", 0)
    await refused(provider, limiter, {"retry-after": "60"})  # for noticeably longer
    assert 55 < await limiter.time_until_available("key", "model", {"rpm": 1}) <= 60


async def test_the_bucket_of_the_parent_can_be_paused_instead(provider, limiter):
    await limiter.create_entity("key", parent_id="project", cascade=True)
    await limiter.create_entity("other", parent_id="project", cascade=True)
    await refused(provider, limiter, {"retry-after": "30"}, pause="project")
    assert 25 < await limiter.time_until_available("other", "model", {"rpm": 1}) <= 30


@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [
        (429, {}, True),  # it does not say for how long
        (429, {"retry-after": "0"}, True),
        (500, {"retry-after": "30"}, True),
        (429, {"retry-after": "30"}, False),
    ],
)
async def test_the_bucket_is_not_paused(status, headers, pause, provider, limiter):
    await refused(provider, limiter, headers, status=status, pause=pause)
    async with reserve(limiter):
        pass


async def test_a_pause_that_fails_is_logged_and_hides_nothing(provider, limiter, caplog):
    provider.answers.append(Answer(status=429, headers={"retry-after": "30"}))
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider) as client:
        with pytest.raises(openai.RateLimitError), outage(limiter):
            async with reserve(limiter, on_unavailable="allow") as call:
                call.record(await sdk.whole(client))
    assert "could not be paused" in caplog.text


@pytest.mark.parametrize("pause", [None, 1, "", "a#b"])
def test_what_cannot_be_paused_is_said_before_the_call(pause, sync_limiter):
    with pytest.raises(ValidationError) as caught:
        reserve(sync_limiter, pause=pause)
    assert caught.value.field == "pause"


async def refused(provider, limiter, headers, *, status=429, **options):
    """Make a call that the provider refuses."""
    provider.answers.append(Answer(status=status, headers=headers))
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider) as client:
        with pytest.raises(openai.APIStatusError):
            async with reserve(limiter, **options) as call:
                call.record(await sdk.whole(client))


async def test_retries_before_an_error_count(provider, limiter, ledger):
    provider.answers += [Answer(status=500)] * 2
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider, retries=1) as client:
        with pytest.raises(openai.InternalServerError):
            async with reserve(limiter) as call:
                call.record(await sdk.whole(client))
    assert await ledger() == (2, INPUT)


async def test_a_provider_that_cannot_be_reached_costs_the_input(limiter, ledger):
    async with openai.AsyncOpenAI(
        api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0
    ) as client:
        with pytest.raises(openai.APIConnectionError):
            async with reserve(limiter) as call:
                call.record(await client.embeddings.create(model="m", input="x"))
    assert await ledger() == (1, INPUT)


# --- streams


async def test_a_stream_costs_what_it_reports_at_its_end(sdk, provider, limiter, ledger):
    async with sdk.client(provider) as client, reserve(limiter) as call:
        events = [event async for event in call.stream(await sdk.stream(client))]
    assert len(events) >= 3
    assert await ledger() == (1, 29)


def test_a_stream_costs_what_it_reports_at_its_end_sync(
    sync_sdk, provider, sync_limiter, sync_ledger
):
    with sync_sdk.sync_client(provider) as client, reserve(sync_limiter) as call:
        assert len(list(call.stream(sync_sdk.stream(client)))) >= 3
    assert sync_ledger() == (1, 29)


async def test_a_stream_without_usage_costs_its_text(provider, limiter, ledger):
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider) as client, reserve(limiter) as call:
        source = await client.chat.completions.create(**sdk.request, stream=True)
        assert [event async for event in call.stream(source)]
    assert await ledger() == (1, INPUT + 3)


async def test_retries_before_a_stream_count(provider, limiter, ledger):
    provider.answers.append(Answer(status=500))
    sdk = ASYNC_SDKS["openai-chat"]
    async with sdk.client(provider, retries=1) as client, reserve(limiter) as call:
        assert [event async for event in call.stream(await sdk.stream(client))]
    assert await ledger() == (2, 29)


@pytest.mark.parametrize("end", ["early", "cut", "error"])
async def test_a_stream_that_ends_too_soon_costs_what_it_delivered(
    end, sdk, provider, limiter, ledger
):
    provider.answers.append(Answer(end=end))
    async with sdk.client(provider) as client:
        try:
            async with reserve(limiter) as call:
                async for _ in call.stream(await sdk.stream(client)):
                    pass
        except Exception:  # noqa: BLE001 - each SDK has its own
            assert end != "early"
    assert await ledger() == (1, input_of(sdk, 3) + 3)


@pytest.mark.parametrize("end", ["early", "cut", "error"])
def test_a_stream_that_ends_too_soon_costs_what_it_delivered_sync(
    end, sync_sdk, provider, sync_limiter, sync_ledger
):
    provider.answers.append(Answer(end=end))
    with sync_sdk.sync_client(provider) as client:
        try:
            with reserve(sync_limiter) as call:
                for _ in call.stream(sync_sdk.stream(client)):
                    pass
        except Exception:  # noqa: BLE001 - each SDK has its own
            assert end != "early" or type(sync_sdk).__name__ == "Bedrock"
    assert sync_ledger() == (1, input_of(sync_sdk, 3) + 3)


async def read_until_it_hangs(source):
    """Read all that was sent, in a task that then waits for more."""
    was_sent_all = asyncio.Event()

    async def read():
        async for event in source:
            if "gamma" in str(event):
                was_sent_all.set()

    task = asyncio.ensure_future(read())
    await was_sent_all.wait()
    await asyncio.sleep(0)  # it asks for the next event
    return task


async def test_a_cancelled_reader_pays_for_what_it_was_sent(sdk, provider, limiter, ledger):
    provider.answers.append(Answer(end="hang"))
    async with sdk.client(provider) as client:

        async def handle():
            async with reserve(limiter) as call:
                stream = call.stream(await sdk.stream(client))
                task = await read_until_it_hangs(stream)
                task.cancel()
                await task

        with pytest.raises(asyncio.CancelledError):
            await handle()
        assert await ledger() == (1, input_of(sdk, 3) + 3)
        assert await asyncio.to_thread(provider.gone.wait, 20), "the provider goes on writing"


async def test_a_handler_may_return_the_stream_from_its_block(sdk, provider, limiter, ledger):
    async with sdk.client(provider) as client:

        async def handle():
            async with reserve(limiter) as call:
                return call.stream(await sdk.stream(client))

        stream = await handle()
        assert await ledger() == (1, INPUT + 500)
        assert [event async for event in stream]
        assert await ledger() == (1, 29)


async def test_a_returned_stream_that_is_closed_pays_for_what_it_was_sent(
    sdk, provider, limiter, ledger
):
    async with sdk.client(provider) as client:
        async with reserve(limiter) as call:
            stream = call.stream(await sdk.stream(client))
        seen = 0
        async for event in stream:
            seen += "alpha" in str(event)
            if seen:
                break
        await stream.aclose()
        assert call.is_settled
        assert await ledger() == (1, input_of(sdk, 1) + 1)


async def test_a_stream_that_is_dropped_pays_for_what_it_was_sent(sdk, provider, limiter, ledger):
    provider.answers.append(Answer(end="hang"))
    async with sdk.client(provider) as client:
        async with reserve(limiter) as call:
            stream = call.stream(await sdk.stream(client))
        async for event in stream:
            if "gamma" in str(event):
                break
        cycle = [stream]
        cycle.append(cycle)  # as a framework would hold it
        del stream, cycle, event
        gc.collect()
        while not call.is_settled:  # noqa: ASYNC110 - no caller is left to be told
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):  # else the provider goes on writing
            while not provider.gone.is_set():
                gc.collect()  # the SDK of Gemini closes its socket no earlier
                await asyncio.sleep(0.01)
        assert await ledger() == (1, input_of(sdk, 3) + 3)


def test_a_sync_stream_that_is_dropped_pays_for_what_it_was_sent(
    sync_sdk, provider, sync_limiter, sync_ledger
):
    provider.answers.append(Answer(end="hang"))
    with sync_sdk.sync_client(provider) as client:
        with reserve(sync_limiter) as call:
            stream = call.stream(sync_sdk.stream(client))
        for event in stream:
            if "gamma" in str(event):
                break
        cycle = [stream]
        cycle.append(cycle)
        del stream, cycle, event
        gc.collect()
        assert provider.gone.wait(20), "the provider goes on writing"  # closed after it is settled
        assert call.is_settled
        assert sync_ledger() == (1, input_of(sync_sdk, 3) + 3)


# --- helpers of the SDKs, which yield events of their own beside those of the provider


@pytest.mark.parametrize(("end", "tokens"), [("complete", 29), ("early", 20 + 3)])
def test_the_stream_helper_of_anthropic_counts_once(
    end, tokens, provider, sync_limiter, sync_ledger
):
    provider.answers.append(Answer(end=end))
    sdk = SYNC_SDKS["anthropic"]
    with (
        sdk.sync_client(provider) as client,
        reserve(sync_limiter) as call,
        client.messages.stream(**sdk.request) as stream,
    ):
        assert [event for event in call.stream(stream) if event.type == "text"]
    assert sync_ledger() == (1, tokens)


@pytest.mark.parametrize(("end", "tokens"), [("complete", 29), ("early", INPUT + 3)])
def test_the_stream_helper_of_openai_counts_once(end, tokens, provider, sync_limiter, sync_ledger):
    provider.answers.append(Answer(end=end))
    sdk = SYNC_SDKS["openai-chat"]
    options = {"stream_options": {"include_usage": True}}
    with (
        sdk.sync_client(provider) as client,
        reserve(sync_limiter) as call,
        client.chat.completions.stream(**sdk.request, **options) as stream,
    ):
        assert [event for event in call.stream(stream) if event.type == "content.delta"]
    assert sync_ledger() == (1, tokens)


async def test_a_proxy_passes_bytes_on(provider, limiter, ledger):
    sdk = ASYNC_SDKS["openai-chat"]
    body = {**sdk.request, "stream": True, "stream_options": {"include_usage": True}}
    async with (
        httpx2.AsyncClient(base_url=provider.url) as client,
        reserve(limiter) as call,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        data = b"".join([chunk async for chunk in call.stream(response.aiter_bytes())])
    assert data.endswith(b"data: [DONE]\n\n")
    assert await ledger() == (1, 29)
