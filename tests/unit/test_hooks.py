"""Hooks of a limiter that cannot work are refused; the rest is in the contract suite."""

import dataclasses
import subprocess
import sys

import pytest

from zae_limiter import RateLimiter, SyncRateLimiter, ValidationError
from zae_limiter import hooks as hooks_module
from zae_limiter.hooks import NAMES, AcquireEvent, Hooks, Observer


@pytest.mark.parametrize("kind", [RateLimiter, SyncRateLimiter])
def test_a_hook_that_would_have_to_be_awaited_is_refused(kind):
    class Async:
        async def on_settle(self, event):
            pass

    with pytest.raises(ValidationError, match=r"on_settle must be a plain function") as caught:
        kind(hooks=Async())
    assert caught.value.field == "hooks"


@pytest.mark.parametrize("kind", [RateLimiter, SyncRateLimiter])
def test_a_class_of_hooks_is_refused(kind):
    class Log(Hooks):
        pass

    for hooks in (Log, [Hooks(), Log]):
        with pytest.raises(ValidationError, match=r"is a class; .* hooks=Log\(\)") as caught:
            kind(hooks=hooks)
        assert caught.value.field == "hooks"


def test_the_base_class_has_every_hook_and_does_nothing():
    assert {name for name in vars(Hooks) if name.startswith("on_")} == set(NAMES)
    for name in NAMES:
        assert getattr(Hooks(), name)(None) is None


def test_events_cannot_be_changed():
    events = [name for name in vars(hooks_module) if name.endswith("Event")]
    assert len(events) == len(NAMES)
    event = AcquireEvent(entity_id="a", resource="b", consume={}, statuses=(), duration_s=0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.entity_id = "c"


def test_an_interrupt_in_a_hook_is_not_swallowed():
    class Stopped(Hooks):
        def on_acquire(self, event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Observer(Stopped()).notify("on_acquire", None)


def test_a_limiter_without_hooks_does_not_import_them():
    code = (
        "import sys, zae_limiter\n"
        "repository = zae_limiter.SyncRepository.open(url='memory://')\n"
        "limiter = zae_limiter.SyncRateLimiter(repository)\n"
        "limits = [zae_limiter.Limit.per_minute('rpm', 10)]\n"
        "with limiter.acquire('user', 'api', {'rpm': 1}, limits): pass\n"
        "absent = ('zae_limiter.hooks', 'zae_limiter.headers')\n"
        "assert not [name for name in absent if name in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
