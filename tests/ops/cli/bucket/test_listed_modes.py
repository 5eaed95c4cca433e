"""A bucket that admits nothing, or everything, by its mode or a pause is listed as such."""

import signal
import subprocess
import sys
from itertools import islice

import pytest

from tests.ops.cli.stores import dynamodb_first
from tests.ops.cli.terminal import INTERRUPTIBLE, MODULE, environment
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

RPM = Limit.per_day("rpm", 1000)
END = "2099-12-01T09:00:00Z"
MANY = 104  # more than a listing reads the configuration of, one by one


@pytest.fixture
def store(shell):
    """Fill the store with a function of a limiter, and close it."""

    def fill(use):
        with SyncRepository.open(url=shell.url) as repository:
            repository.set_system_defaults([RPM])
            use(SyncRateLimiter(repository))

    return fill


def use_up(limiter, entity_id, resource="gpt-4"):
    with limiter.acquire(entity_id, resource, {"rpm": 1}):
        pass


def set_modes(limiter):
    repository = limiter.repository
    for entity_id in ("denied", "ending", "shadowed", "paused", "usual"):
        use_up(limiter, entity_id)
    repository.set_mode("gpt-4", entity_id="denied", mode="deny")
    repository.set_mode(entity_id="ending", mode="deny", until=END)
    repository.set_mode("gpt-4", entity_id="shadowed", mode="shadow")
    repository.pause("paused", "gpt-4", 300)


def waits(shell, *args):
    """Return the last words of each line of the table about the wait, by entity."""
    lines = shell("bucket", "list", *args).out.splitlines()
    return {line.split()[0]: line for line in lines if "gpt-4" in line}


@dynamodb_first
def test_a_list_shows_modes_and_pauses_with_their_ends(shell, store):
    store(set_modes)
    for args in ((), ("--sort", "wait"), ("--near", "0.01%")):
        lines = waits(shell, *args)
        assert lines["denied"].rstrip().endswith("denied"), args
        assert "denied, in " in lines["ending"]
        assert "now (shadow)" in lines["shadowed"]
        assert "paused, in " in lines["paused"]
        assert lines["usual"].rstrip().endswith("now")


@dynamodb_first
def test_the_json_of_a_list_has_modes_and_pauses_with_their_ends(shell, store):
    store(set_modes)
    found = shell("bucket", "list", "--output", "json").json["buckets"]
    limits = {each["entity_id"]: each["limits"][0] for each in found}
    modes = {name: (limit["mode"], limit["mode_until"]) for name, limit in limits.items()}
    assert modes == {
        "denied": ("deny", None),
        "ending": ("deny", END),
        "shadowed": ("shadow", None),
        "paused": ("enforce", None),
        "usual": ("enforce", None),
    }
    waiting = {name: limit["retry_after_seconds"] for name, limit in limits.items()}
    assert waiting["denied"] is None
    assert waiting["ending"] > 10**9
    assert 290 < waiting["paused"] <= 300
    assert (waiting["shadowed"], waiting["usual"]) == (0, 0)


@dynamodb_first
def test_a_denied_bucket_that_has_rejected_calls_does_not_fit_now(shell, store):
    def use(limiter):
        use_up(limiter, "key-1")
        limiter.repository.set_mode("gpt-4", entity_id="key-1", mode="deny")
        for _ in range(2):
            with pytest.raises(RateLimitExceeded):
                use_up(limiter, "key-1")

    store(use)
    line = waits(shell, "--limited")["key-1"]
    assert " now " not in line
    assert " denied " in line
    (bucket,) = shell("bucket", "list", "--limited", "--output", "json").json["buckets"]
    assert bucket["limited_by"] == ["key-1", "gpt-4", "mode deny"]
    assert bucket["fits_after_seconds"] is None


@dynamodb_first
def test_the_modes_of_many_buckets_are_right_without_reading_each(shell, store):
    def use(limiter):
        repository = limiter.repository
        for number in range(MANY):
            use_up(limiter, f"key-{number:03}", "a" if number % 2 else "b")
        repository.set_mode("a", mode="bypass")
        for number in (1, MANY - 1):
            repository.set_mode("a", entity_id=f"key-{number:03}", mode="deny")
        repository.set_mode(entity_id="key-002", mode="deny", until=END)

    store(use)
    found = shell("bucket", "list", "--all", "--output", "json").json["buckets"]
    denied = {each["entity_id"] for each in found if each["limits"][0]["mode"] == "deny"}
    assert denied == {"key-001", "key-002", f"key-{MANY - 1:03}"}
    bypassed = [each for each in found if each["limits"][0]["mode"] == "bypass"]
    assert len(bypassed) == MANY // 2 - 2


def test_a_watched_list_of_many_buckets_shows_a_mode_that_is_set_meanwhile(shell, store):
    def use(limiter):
        for number in range(MANY):
            use_up(limiter, f"key-{number:03}")

    store(use)
    words = [sys.executable, "-c", INTERRUPTIBLE, *MODULE, "bucket", "list", "--limit", "200"]
    words += ["--watch", "0.1", "--url", shell.url]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        lines = (line for line in process.stdout if line.startswith("key-000"))
        assert next(lines).rstrip().endswith("now")
        assert next(lines).rstrip().endswith("now")
        store(lambda limiter: limiter.repository.set_mode("gpt-4", mode="deny"))
        # Tables that were printed before are read first.
        is_shown = any(line.rstrip().endswith("denied") for line in islice(lines, 50))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert is_shown
    assert (process.returncode, err) == (0, "")
