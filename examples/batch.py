"""A batch worker: sends many prompts as fast as the limits allow, and waits instead of failing.

    python -m examples.batch prompts.txt > answers.jsonl

Several workers may run at once, on several machines, with the same store (``ZAEL_URL``): they share
the limits and are served in the order in which they ask. ``UPSTREAM_URL`` leads to the provider.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import openai

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, llm

LIMITS = [
    Limit.per_minute("rpm", 600),
    Limit.per_minute("tpm", 60_000, burst=6_000),
    Limit.budget("usd", "5.00", per="day"),
]
PRICES = llm.Prices.load(Path(__file__).with_name("prices.yaml"))
PATIENCE_S = 3_600.0  # for one prompt; what cannot fit by then is rejected at once
WORKERS = 8
MODEL = "m"


async def answer_all(
    limiter: RateLimiter,
    client: openai.AsyncOpenAI,
    prompts: Iterable[str],
    write: Callable[[dict[str, Any]], object],
) -> None:
    """Write an answer for every prompt, in the order in which they arrive."""
    remaining = iter(prompts)

    async def work() -> None:
        for prompt in remaining:  # each takes the next one
            write(await ask(limiter, client, prompt))

    async with asyncio.TaskGroup() as workers:
        for _ in range(WORKERS):
            workers.create_task(work())


async def ask(limiter: RateLimiter, client: openai.AsyncOpenAI, prompt: str) -> dict[str, Any]:
    """Wait for capacity, ask, and settle; a prompt that fails says why and stops no other."""
    messages = [{"role": "user", "content": prompt}]
    request: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 200}
    try:
        async with llm.reserve(
            limiter, "batch", MODEL, request, prices=PRICES, timeout=PATIENCE_S
        ) as call:
            response = await client.chat.completions.create(**request)
            call.record(response)
    except (RateLimitExceeded, openai.APIError) as error:
        return {"prompt": prompt, "error": str(error)}
    return {"prompt": prompt, "answer": response.choices[0].message.content}


async def main(prompts: Iterable[str]) -> None:
    upstream = os.environ.get("UPSTREAM_URL", "http://127.0.0.1:9100/v1")
    key = os.environ.get("UPSTREAM_KEY", "none")
    async with (
        Repository.open(url=os.environ.get("ZAEL_URL", "sqlite:///batch.db")) as repository,
        openai.AsyncOpenAI(base_url=upstream, api_key=key, max_retries=0) as client,
    ):
        limiter = RateLimiter(repository=repository)
        await limiter.set_limits("batch", LIMITS, if_missing=True)  # keeps what an operator has set
        await answer_all(
            limiter, client, prompts, lambda answer: sys.stdout.write(json.dumps(answer) + "\n")
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()))
