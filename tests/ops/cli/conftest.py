import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.stores import empty_store, fill, of_aws
from zae_limiter import SyncRepository


@pytest.fixture
def engine():
    """The engine of the test's store; overridden by ``on_both_engines``."""
    return "sqlite"


@pytest.fixture
def empty_url(engine, tmp_path):
    """The URL of an empty store."""
    with empty_store(engine, tmp_path) as url:
        yield url


@pytest.fixture
def url(empty_url):
    """The URL of a store with a little of everything."""
    fill(empty_url)
    return empty_url


@pytest.fixture
def clean_environment(monkeypatch):
    """No variable leads a command elsewhere than the test says."""
    names = ("ZAEL_NAMESPACE", "ZAEL_DEBUG", "ZAEL_PRINCIPAL", "ZAEL_STACK", *of_aws())
    for name in names:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def cli(capsys, clean_environment, url):
    clean_environment.setenv("ZAEL_URL", url)
    return CommandLine(capsys, url)


@pytest.fixture
def shell(capsys, clean_environment, empty_url):
    """Commands that succeed, from an empty store on."""
    clean_environment.setenv("ZAEL_URL", empty_url)
    run = CommandLine(capsys, empty_url)

    def succeeds(*args):
        ran = run(*args)
        assert ran.code == 0, ran.err
        return ran

    succeeds.url, succeeds.run = empty_url, run
    return succeeds


@pytest.fixture
def opened(url):
    with SyncRepository.open(url=url) as repository:
        yield repository
