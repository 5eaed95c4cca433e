"""The circuit breaker of a store. While the store does not answer, calls do not wait for it."""

from __future__ import annotations

# sync: import threading
import time
from contextlib import suppress
from math import inf
from typing import Any

from zae_limiter._async.ports import Engine
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork

# One or two calls may be lost with a connection; three calls in a row without an answer are an
# outage.
MIN_OUTAGES = 3
# Often enough to notice soon that the store is back, and hardly any load for a starting store.
PROBE_EVERY_S = 1.0


class Breaker:
    """Answers calls at once while the store is down.

    The breaker opens if at least 3 calls have ended as an outage since the last answer, and the
    last answer is at least ``request_timeout`` old. While the breaker is open, calls raise
    RateLimiterUnavailable at once, and the outage policy of the call decides. These calls also
    start probes of the store: one at a time, and at most one a second. Any answer of the store
    closes the breaker. All repositories on one open store share one breaker.
    """

    def __init__(self, engine: Engine, place: str, timeout_s: float) -> None:
        self._engine = engine
        self._engine_notes_answers = engine.answered_s is not None
        self._place = place
        self._timeout_s = timeout_s
        self.is_open = False
        # The time of the last answer. Every call sets it, so it is set without the lock.
        self.answered_s = time.monotonic()
        self._counted_since_s = 0.0
        self._outages = 0
        self._opened_s = 0.0
        self._reason = ""
        self._probed_s = 0.0
        self._is_probing = False
        self._probe_task: object = None  # asyncio itself refers to tasks weakly
        self._openings = 0
        self._answers = 0
        self._answers_before = 0
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget a probe in flight, which runs in the parent only."""
        self._is_probing = False

    def check(self) -> None:
        """Raise RateLimiterUnavailable while the breaker is open; start a probe if one is due."""
        if self.lets_through():
            return
        with self._lock:
            self._answers += 1
            waited_s, reason = time.monotonic() - self._last_answer_s(), self._reason
        raise RateLimiterUnavailable(
            f"{self._place} has not answered for {waited_s:.1f} s, so this call did not wait for "
            f"it; calls reach the store again when it answers ({reason})",
            stack_name=self._place,
        )

    def lets_through(self) -> bool:
        """Tell whether calls reach the store; if they do not, start a probe if one is due."""
        if not self.is_open:
            return True
        if self._has_answered():
            self._close()
        with self._lock:
            if not self.is_open:
                return True
            now = time.monotonic()
            # A probe that takes longer was lost, because its event loop was closed.
            lost_after_s = 2 * self._timeout_s + PROBE_EVERY_S
            pause_s = lost_after_s if self._is_probing else PROBE_EVERY_S
            is_due = now - self._probed_s >= pause_s
            if is_due:
                self._probed_s, self._is_probing = now, True
        if is_due:
            self._start_probe()
        return False

    def failed(self, error: RateLimiterUnavailable) -> None:
        """Count a call that ended as an outage; open the breaker if there were enough of them."""
        with self._lock:
            now, answered_s = time.monotonic(), self._last_answer_s()
            if answered_s != self._counted_since_s:
                self._counted_since_s, self._outages = answered_s, 0
            self._outages += 1
            silent_s = now - answered_s
            if self.is_open or self._outages < MIN_OUTAGES or silent_s < self._timeout_s:
                return
            self.is_open, self._opened_s, self._probed_s = True, now, 0.0
            self._reason, self._openings = str(error), self._openings + 1
            self._answers_before = self._answers
        _log(
            "%s does not answer. Until it does, on_unavailable decides about calls at once. "
            "Check the store, its endpoint and the network (%s)",
            self._place,
            error,
        )

    def stats(self) -> dict[str, Any]:
        """Return the fields of ``StoreStats`` about the breaker."""
        return {
            "breaker_open": self.is_open and not self._has_answered(),
            "breaker_openings": self._openings,
            "breaker_answers": self._answers,
        }

    def decided(self) -> None:
        """Note a decided charge as an answer of the store.

        An engine may note the answers itself, if it also decides without a call: by its rejection
        cache.
        """
        if not self._engine_notes_answers:
            self.answered_s = time.monotonic()

    def answered(self) -> None:
        """Note that the store answers, and close the breaker if it is open."""
        self.answered_s = time.monotonic()
        self._close()

    def stop(self) -> None:
        """Let all calls through to a closed store, whose error says that it is closed."""
        self.is_open, self._timeout_s = False, inf

    def _last_answer_s(self) -> float:
        """Return the time of the last answer; an engine may know of some that no call has seen."""
        return max(self.answered_s, self._engine.answered_s or 0.0)

    def _has_answered(self) -> bool:
        return self._last_answer_s() > self._opened_s

    def _close(self) -> None:
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
            down_s = time.monotonic() - self._opened_s
            answers = self._answers - self._answers_before
        _log(
            "%s answers again after %.1f s; %d calls did not wait for it",
            self._place,
            down_s,
            answers,
        )

    def _start_probe(self) -> None:
        import asyncio  # unasync: remove

        with suppress(RuntimeError):  # no thread could be started, so the next call tries again
            self._probe_task = asyncio.ensure_future(self._probe())  # unasync: remove
            # sync: threading.Thread(target=self._probe, daemon=True, name="zael-probe").start()
            return
        self._is_probing = False

    async def ask(self) -> None:
        """Ask the store whether it answers; an outage raises RateLimiterUnavailable."""
        await self._engine.probe()

    async def _probe(self) -> None:
        try:
            await self.ask()
        except RateLimiterUnavailable:
            if not self._has_answered():
                return
        except ZAELimiterError:
            pass  # an error of the store is an answer as well
        finally:
            self._is_probing = False
        self.answered()


def _log(message: str, *args: object) -> None:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    quiet_logger(__name__).warning(message, *args)
