"""Answers that are kept for requests with an ``Idempotency-Key``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from zae_limiter_service.answers import Answer, overloaded, problem

KEPT_S = 600.0
MAX_KEPT = 100_000
MAX_KEY = 255  # characters


class _Kept(NamedTuple):
    fingerprint: object
    answer: asyncio.Future[Answer]
    ends_at: float


class KeptAnswers:
    """Performs a request once per key, and gives its answer to each repetition.

    A rejection or an outage is not kept: it has charged nothing, and a repetition is a new try. A
    repetition that comes while the first request is under way waits for its answer.
    """

    def __init__(
        self, *, max_kept: int = MAX_KEPT, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept: dict[tuple[str, ...], _Kept] = {}  # the oldest first
        self._max_kept = max_kept
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._kept)

    async def perform(
        self, key: tuple[str, ...], fingerprint: object, perform: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Return the answer to a request; ``key`` contains its scope."""
        self._forget_old()
        kept = self._kept.get(key)
        if kept is not None:
            if kept.fingerprint != fingerprint:
                return problem(
                    422,
                    "key-reused",
                    "this Idempotency-Key belongs to another request; use a new one",
                )
            return await asyncio.shield(kept.answer)
        if len(self._kept) >= self._max_kept:
            return overloaded("too-many-keys", "too many answers are kept; try again later")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[key] = _Kept(fingerprint, answer, self._seconds() + KEPT_S)
        return await self._perform(key, answer, perform)

    async def _perform(
        self,
        key: tuple[str, ...],
        answer: asyncio.Future[Answer],
        perform: Callable[[], Awaitable[Answer]],
    ) -> Answer:
        try:
            result = await perform()
        except BaseException:
            del self._kept[key]
            answer.set_result(overloaded("interrupted", "the first request was interrupted"))
            raise
        if result.status == 429 or result.status >= 500:
            del self._kept[key]
        answer.set_result(result)
        return result

    def _forget_old(self) -> None:
        now = self._seconds()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].ends_at > now or not self._kept[oldest].answer.done():
                return
            del self._kept[oldest]
