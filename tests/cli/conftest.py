import pytest

from tests.cli.inprocess import CommandLine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 1000, burst=2000)


@pytest.fixture
def url(tmp_path):
    """A store that holds a little of everything."""
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([RPM], "allow", "setup")
        repository.set_resource_defaults("gpt-4", [RPM, TPM], "setup")
        repository.create_entity("project-1", "Project One", principal="setup")
        repository.create_entity("key-7", None, "project-1", True, {"team": "search"}, "setup")
        repository.set_limits("project-1", [Limit.per_minute("rpm", 100)], principal="setup")
        repository.set_limits("key-7", [Limit.per_minute("rpm", 10), TPM], "gpt-4", "setup")
        repository.register_namespace("tenant-a")
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-7", "gpt-4", {"rpm": 3, "tpm": 500}) as lease:
            lease.adjust(tpm=2500)
    return url


@pytest.fixture
def cli(capsys, monkeypatch, url):
    for name in ("ZAEL_NAMESPACE", "ZAEL_DEBUG", "ZAEL_PRINCIPAL", "ZAEL_STACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZAEL_URL", url)
    return CommandLine(capsys, url)


@pytest.fixture
def opened(url):
    with SyncRepository.open(url=url) as repository:
        yield repository
