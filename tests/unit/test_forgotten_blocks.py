"""An acquire that is dropped without having been entered limits nothing, and says so."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from zae_limiter import (
    InfrastructureError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    SyncRateLimiter,
    ValidationError,
)
from zae_limiter.llm import SyncLlmReservation
from zae_limiter.web.wsgi import WsgiMiddleware

RPM = [Limit.per_minute("rpm", 2)]
ALSO = {"all": {"rpm": 1}}


@pytest.fixture
def limiter():
    limiter = SyncRateLimiter(url="memory://")
    limiter.set_system_defaults(RPM)
    return limiter


@contextlib.contextmanager
def warned():
    """Collect the warnings of a block, also those of reference cycles."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
        gc.collect()


def line_of_comment(comment):
    lines = Path(__file__).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


@pytest.mark.parametrize("also", [None, ALSO])
@pytest.mark.parametrize("timeout", [None, 5])
def test_a_forgotten_with_warns_at_the_line_of_the_call(limiter, also, timeout):
    with warned() as caught:
        limiter.acquire("user-1", "gpt-4", {"rpm": 1}, also=also, timeout=timeout)  # forgotten
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert (warning.filename, warning.lineno) == (__file__, line_of_comment("forgotten"))
    assert "'user-1' on 'gpt-4'" in str(warning.message)
    assert "`with limiter.acquire(...):`" in str(warning.message)


def test_an_async_acquire_warns_too():
    with warned() as caught:
        RateLimiter(url="memory://").acquire("user-1", "gpt-4", {"rpm": 1})  # forgotten as well
    (warning,) = caught
    assert warning.lineno == line_of_comment("forgotten as well")
    assert "`async with limiter.acquire(...):`" in str(warning.message)


def test_a_reservation_of_an_llm_call_warns_once(limiter):
    limiter.set_system_defaults([*RPM, Limit.per_minute("tpm", 1000)])
    with warned() as caught:
        SyncLlmReservation(limiter, "user-1", "gpt-4", estimate=100)  # not reserved
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, line_of_comment("not reserved"))
    assert "'user-1' on 'gpt-4'" in str(warning.message)


def test_the_warning_is_shown_once_for_each_line_and_block(limiter):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(100):
            limiter.acquire("user-2", "gpt-4", {"rpm": 1})
    assert len(caught) == 1


def test_entered_acquires_are_silent(limiter):
    with warned() as caught:
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, also=ALSO) as lease:
            lease.settle(rpm=0)
        with contextlib.ExitStack() as stack:
            stack.enter_context(limiter.acquire("user-3", "gpt-4", {"rpm": 1}))
        later = limiter.acquire("user-4", "gpt-4", {"rpm": 1})
        with later:
            pass
        del later
    assert caught == []


def test_acquires_that_fail_are_silent(limiter):
    with warned() as caught:
        for options in ({}, {"also": ALSO}, {"timeout": 0.001}):
            with (
                pytest.raises(RateLimitExceeded),
                limiter.acquire("user-1", "gpt-4", {"rpm": 3}, **options),
            ):
                pass
        with pytest.raises(ValidationError):
            limiter.acquire("", "gpt-4", {"rpm": 1})
        with pytest.raises(ValidationError):
            limiter.acquire("user-1", "gpt-4", {"rpm": 1}, also={"": {"rpm": 1}})
        with pytest.raises(ValidationError), limiter.acquire("user-1", "gpt-4", {"tpm": 1}):
            pass
        limiter.repository.close()
        with (
            pytest.raises(InfrastructureError),
            limiter.acquire("user-1", "gpt-4", {"rpm": 1}),
        ):
            pass
    assert caught == []


def test_an_acquire_that_is_cancelled_before_it_begins_is_silent():
    async def cancel(acquire):
        entering = asyncio.ensure_future(acquire.__aenter__())
        entering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await entering

    with warned() as caught:
        asyncio.run(cancel(RateLimiter(url="memory://").acquire("u", "gpt-4", {"rpm": 1})))
    assert caught == []


def test_the_checks_of_a_web_adapter_are_silent(limiter):
    with warned() as caught:
        WsgiMiddleware(lambda environ, start: [], limiter, key=lambda request: "user-1")
        with pytest.raises(ValidationError):
            WsgiMiddleware(lambda environ, start: [], limiter, key=7)
    assert caught == []


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_program_that_makes_warnings_errors_sees_it_on_stderr(is_forgotten):
    program = """
        from zae_limiter import Limit, SyncRateLimiter
        limiter = SyncRateLimiter(url="memory://")
        limiter.set_system_defaults([Limit.per_minute("rpm", 5)])
        kept = limiter.acquire("user-1", "gpt-4", {"rpm": 1})  # until the end of the program
        block = limiter.acquire("user-1", "gpt-4", {"rpm": 1})
        if not FORGOTTEN:
            with block:
                pass
        del block
    """.replace("FORGOTTEN", str(is_forgotten))
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("RuntimeWarning" in ran.stderr) is is_forgotten
    assert ran.stderr.count("RuntimeWarning") <= 1


def test_a_block_that_was_entered_runs_no_code_when_it_is_dropped(limiter):
    """A Ctrl-C that came during such code would be swallowed."""
    block, calls = limiter.acquire("user-1", "gpt-4", {"rpm": 1}), []
    with block:
        pass
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    del block
    sys.setprofile(None)
    assert "call" not in calls
