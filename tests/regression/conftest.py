import pytest

from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "limits.db"


@pytest.fixture
def sqlite_url(path):
    return f"sqlite:///{path}?synchronous=OFF"


@pytest.fixture(params=["memory", "sqlite"])
def url(request, sqlite_url):
    """A store of each engine."""
    return "memory://" if request.param == "memory" else sqlite_url


@pytest.fixture
def repo(url, clock):
    with SyncRepository.open(url=url, clock=clock) as repository:
        yield repository


@pytest.fixture
def limiter(repo):
    return SyncRateLimiter(repo)
