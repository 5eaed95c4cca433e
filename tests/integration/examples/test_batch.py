"""The batch worker of the examples waits for capacity instead of failing."""

import time
from decimal import Decimal

import pytest

from tests.support.lazy import Lazy
from tests.support.web_servers import asgi_server
from zae_limiter import Limit, RateLimiter, Repository

batch, stand_in_provider = Lazy("examples.batch"), Lazy("examples.stand_in_provider")
openai = Lazy("openai")

MONEY = Limit.budget("usd", "1.00", per="day")


@pytest.fixture
async def client():
    async with asgi_server(stand_in_provider.app) as port:
        url = f"http://127.0.0.1:{port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield client


async def test_every_prompt_is_answered_at_the_rate_of_the_limit(client, tmp_path):
    prompts = [f"prompt {number}" for number in range(20)]
    async with Repository.open(url=f"sqlite:///{tmp_path}/batch.db") as repository:
        limiter = RateLimiter(repository=repository)
        limits = [Limit.per_second("rpm", 10), Limit.per_minute("tpm", 1_000_000), MONEY]
        await limiter.set_limits("batch", limits)
        begun = time.monotonic()
        results = []
        await batch.answer_all(limiter, client, prompts, results.append)
        taken = time.monotonic() - begun
    assert sorted(each["prompt"] for each in results) == sorted(prompts)
    assert all(each["answer"].startswith("prompt") for each in results)
    assert taken >= 0.99, "10 at once, then 10 a second"


async def test_a_prompt_that_can_never_fit_stops_no_other(client):
    async with Repository.open(url="memory://") as repository:
        limiter = RateLimiter(repository=repository)
        limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 300), MONEY]
        await limiter.set_limits("batch", limits)
        prompts = ["x " * 900, "short"]
        results = []
        await batch.answer_all(limiter, client, prompts, results.append)
    by_prompt = {each["prompt"]: each for each in results}
    assert "never fit" in by_prompt[prompts[0]]["error"]
    assert by_prompt["short"]["answer"]


async def test_the_spend_is_the_price_of_the_tokens(client):
    async with Repository.open(url="memory://") as repository:
        limiter = RateLimiter(repository=repository)
        limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000), MONEY]
        await limiter.set_limits("batch", limits)
        await batch.answer_all(limiter, client, ["one two three four"] * 3, [].append)
        left = (await limiter.available("batch", batch.MODEL))["usd"]
    # 4 tokens at 0.15 and 200 at 0.6 millionths each.
    assert 1 - left == 3 * Decimal("0.0001206")
