"""Ctrl-C while a file is opened or closed: nothing stays behind."""

import gc
import itertools
from contextlib import suppress
from pathlib import Path

import pytest
from zae_limiter_contract.signal_points import InterruptAt

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

LIMITS = [Limit.custom("rpm", 1_000_000, 1, 86_400)]


def open_and_use(url):
    with (
        SyncRepository.open(url=url, request_timeout=2) as repository,
        SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}, LIMITS),
    ):
        pass


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_repository_that_is_not_closed_keeps_no_file_open_when_it_is_gone(tmp_path):
    before = open_files()
    for number in range(5):
        repository = SyncRepository.open(url=f"sqlite:///{tmp_path}/{number}.db")
        repository.set_system_defaults(LIMITS)
    del repository
    gc.collect()
    assert open_files() <= before


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("exists", "step"),
    [(True, 4), *(pytest.param(exists, 1, marks=pytest.mark.slow) for exists in (True, False))],
)
def test_an_interrupted_open_leaves_no_lock_and_no_open_file(tmp_path, exists, step):
    before = open_files()
    for position in itertools.count(1, step):
        url = f"sqlite:///{tmp_path}/{0 if exists else position}.db?synchronous=OFF"
        if exists:
            open_and_use(url)
        interrupt = InterruptAt(position)
        with suppress(KeyboardInterrupt), interrupt:
            SyncRepository.open(url=url, request_timeout=2).close()
        open_and_use(url)  # would wait for a lock that was left behind
        if interrupt.struck is None:
            break
    gc.collect()  # the tracebacks of the interrupts hold on to what was being opened
    assert open_files() <= before
