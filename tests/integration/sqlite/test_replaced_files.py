"""A file that is removed or replaced while processes have it open."""

from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.embedded.sqlite.store_file import CHECK_EVERY_S

RPM = [Limit.per_minute("rpm", 10)]


@pytest.fixture
def repository(sqlite_url, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock) as repository:
        repository.set_system_defaults(RPM)
        take(repository)
        yield repository


@pytest.fixture
def later(monkeypatch):
    """Let the time pass in which the file is not looked at."""
    from time import monotonic

    return lambda: monkeypatch.setattr("time.monotonic", lambda: monotonic() + 2 * CHECK_EVERY_S)


def take(repository, **how):
    with SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}, **how) as lease:
        return lease.consumed


def move(path, to):
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").replace(f"{to}{suffix}")


def test_a_file_that_was_removed_is_an_outage_that_says_so(repository, path, later):
    path.unlink()
    later()
    with pytest.raises(RateLimiterUnavailable, match=r"removed or replaced.*open the repository"):
        take(repository)
    assert take(repository, on_unavailable="allow") == {}
    with pytest.raises(RateLimiterUnavailable, match="removed or replaced"):
        repository.get_bucket("user", "api", "rpm")
    assert not path.exists()


def test_a_file_that_was_replaced_is_an_outage_until_it_is_opened_again(
    repository, path, later, sqlite_url, clock, tmp_path
):
    move(path, tmp_path / "old.db")
    with SyncRepository.open(url=sqlite_url, clock=clock) as other:
        other.set_system_defaults(RPM)
        later()
        with pytest.raises(RateLimiterUnavailable, match="removed or replaced"):
            take(repository)
        assert take(other) == {"rpm": 1}
        assert SyncRateLimiter(other).available("user", "api") == {"rpm": 9}


def test_a_file_that_was_moved_back_works_again(repository, path, later, tmp_path):
    move(path, tmp_path / "old.db")
    later()
    with pytest.raises(RateLimiterUnavailable):
        take(repository)
    move(tmp_path / "old.db", path)
    assert take(repository) == {"rpm": 1}
    assert SyncRateLimiter(repository).available("user", "api") == {"rpm": 8}


def test_a_relative_path_is_found_from_another_folder(tmp_path, monkeypatch, later, clock):
    monkeypatch.chdir(tmp_path)
    with SyncRepository.open(url="sqlite:///limits.db", clock=clock) as repository:
        repository.set_system_defaults(RPM)
        monkeypatch.chdir("/")
        later()
        assert take(repository) == {"rpm": 1}
