"""Statements of the guide, followed literally with the real SDKs and the stand-in provider."""

import asyncio
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.docs.pages import DOCS, blocks
from tests.integration.llm.sdks import ASYNC_SDKS, SYNC_SDKS
from tests.support.lazy import Lazy
from tests.support.providers import Answer
from tests.support.web_servers import asgi_server
from zae_limiter import (
    Limit,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    ZAELimiterError,
    llm,
)

anthropic, stand_in_provider = Lazy("anthropic"), Lazy("examples.stand_in_provider")
GUIDE = DOCS / "guide/llm-integration.md"
TOTAL = Limit.budget("usd", "5.00", per="day")
CHAT = ASYNC_SDKS["openai-chat"]
INPUT = 50


def words(text):
    return len(text.split())


async def test_the_program_of_the_guide_runs_and_the_command_line_shows_it(tmp_path):
    (program,) = [block for block in blocks(GUIDE, "py") if "asyncio.run" in block]
    async with asgi_server(stand_in_provider.app) as port:
        found = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "none"}
        shown = await run(tmp_path, found, "-c", program)
    assert "reserved Estimate(input_tokens=14, output_tokens=500)" in shown
    assert "charged Usage(input_tokens=2, output_tokens=500," in shown
    assert re.search(r"left \{'rpm': (59|60),", shown), "a second of a busy machine refills one"
    summary = ("usage", "summary", "--entity-id", "key-1", "--url", "sqlite:///llm.db")
    shown = await run(tmp_path, {}, "-m", "zae_limiter", *summary)
    assert "tpm      502" in shown


@pytest.mark.parametrize(
    ("model", "stream", "cost"),
    [
        ("m", False, 3 + 5),
        ("m", True, 3 + 5),
        ("cuts", True, 3 + 3),
        ("refuses", False, INPUT),
        ("fails", False, INPUT),
    ],
)
async def test_the_stand_in_speaks_the_messages_of_anthropic(model, stream, cost, limiter, ledger):
    messages = [{"role": "user", "content": "one two three"}]
    request = {"model": model, "messages": messages, "max_tokens": 5, "stream": stream}
    estimate = llm.Estimate(INPUT, 500)
    async with (
        asgi_server(stand_in_provider.app) as port,
        anthropic.AsyncAnthropic(
            base_url=f"http://127.0.0.1:{port}", api_key="none", max_retries=0
        ) as client,
    ):
        with suppress(anthropic.APIStatusError):
            async with llm.reserve(
                limiter, "key", "model", estimate=estimate, count=words, pause=False
            ) as call:
                response = await client.messages.create(**request)
                if stream:
                    assert [event async for event in call.stream(response)]
                else:
                    call.record(response)
    assert await ledger() == (1, cost)


async def run(folder, variables, *arguments):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def spend(limiter):
    left = await limiter.available("key", "all-models")
    return (5 - left["usd"]).scaleb(6)  # millionths of a dollar


@pytest.fixture
def price(tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text("models: {m: {input: 3, output: 15}}")
    return llm.Prices.load(file).of("m")


async def both(limiter, client, price):
    """The example that charges a total over all models beside the limits of one."""
    async with llm.reserve(
        limiter, "key", "all-models", CHAT.request, prices=price, meter={}, pause=False
    ) as bill:
        try:
            async with llm.reserve(limiter, "key", "model", CHAT.request) as call:
                chunks = call.stream(await CHAT.stream(client))
                async for _ in bill.stream(chunks):
                    pass
        except ZAELimiterError:
            bill.refund()
            raise


@pytest.mark.parametrize(("end", "cost"), [("complete", 20 * 3 + 9 * 15), ("early", None)])
async def test_a_total_over_models_is_charged_beside_the_model(
    end, cost, provider, limiter, ledger, price
):
    await limiter.set_resource_defaults("all-models", [TOTAL])
    provider.answers.append(Answer(end=end))
    async with CHAT.client(provider) as client:
        await both(limiter, client, price)
    estimated = llm.estimate_input(CHAT.request)
    text = llm.count_tokens("alpha beta gamma")
    assert await ledger() == (1, 29 if cost else estimated + text)
    assert await spend(limiter) == (cost or estimated * 3 + text * 15)


async def test_a_rejection_by_the_model_leaves_the_total_alone(provider, limiter, price):
    await limiter.set_resource_defaults("all-models", [TOTAL])
    await limiter.set_limits(
        "key", [Limit.per_minute("rpm", 5), Limit.per_minute("tpm", 5)], "model"
    )
    async with CHAT.client(provider) as client:
        with pytest.raises(RateLimitExceeded):
            await both(limiter, client, price)
    assert await spend(limiter) == 0
    assert not provider.requests


async def test_a_mistake_about_the_model_leaves_the_total_alone(provider, limiter, price):
    await limiter.set_resource_defaults("all-models", [TOTAL])
    await limiter.set_limits("key", [Limit.per_minute("other", 5)], "model")
    async with CHAT.client(provider) as client:
        with pytest.raises(ValidationError):
            await both(limiter, client, price)
    assert await spend(limiter) == 0
    assert not provider.requests


@pytest.mark.parametrize("page", ["llm-integration", "llm-money"])
def test_the_examples_can_be_pasted(page, tmp_path):
    pasted = (
        "\n\n".join(blocks(DOCS / f"guide/{page}.md", "python")) + "\n\nprint('end of the page')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=pasted,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert "Error" not in done.stderr
    assert "end of the page" in done.stdout


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
async def test_raw_responses_are_recorded(name, provider, limiter, ledger):
    sdk = ASYNC_SDKS[name]
    async with (
        sdk.client(provider) as client,
        llm.reserve(limiter, "key", "model", sdk.request) as call,
    ):
        create = (
            client.messages if name == "anthropic" else client.chat.completions
        ).with_raw_response.create
        assert call.record(await create(**sdk.request)) == llm.Usage(20, 9)
    assert await ledger() == (1, 29)


def test_texts_of_a_helper_are_counted(provider, sync_limiter, sync_ledger):
    sdk = SYNC_SDKS["anthropic"]
    with (
        sdk.sync_client(provider) as client,
        llm.reserve(sync_limiter, "key", "model", estimate=llm.Estimate(50, 500)) as call,
        client.messages.stream(**sdk.request) as stream,
    ):
        assert list(call.stream(stream.text_stream)) == ["alpha ", "beta ", "gamma"]
    assert sync_ledger() == (1, 50 + llm.count_tokens("alpha beta gamma"))


def test_a_limit_that_the_meter_does_not_name_is_not_charged():
    with SyncRepository.open(url="memory://") as repository:
        limiter = SyncRateLimiter(repository=repository)
        limits = [Limit.per_day(name, 1_000) for name in ("rpm", "tpm", "rpd")]
        limiter.set_system_defaults(limits)
        with llm.reserve(limiter, "key", "model", estimate=10) as call:
            call.record_usage(llm.Usage(1, 1))
        assert limiter.available("key", "model")["rpd"] == 1_000
        meter = {**llm.DEFAULT_METER, "rpd": llm.REQUESTS}
        with llm.reserve(limiter, "key", "model", estimate=10, meter=meter) as call:
            call.record_usage(llm.Usage(1, 1))
        assert limiter.available("key", "model")["rpd"] == 999
