"""A running service on a real store."""

import hashlib

import pytest

from tests.service.running import ThreadedService, service_settings
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

TOKENS = {"gateway": "acquire", "reader": "read", "operator": "manage"}


@pytest.fixture
def url(tmp_path):
    # A busy disk is no topic here, and would be an outage to the service.
    return f"sqlite:///{tmp_path / 'limits.db'}?synchronous=OFF"


@pytest.fixture
def limiter(url):
    """A limiter on the store of the service, beside it."""
    with SyncRepository.open("default", url=url, config_cache_ttl=0) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_resource_defaults(
            "gpt-4", [Limit.per_day("rpd", 100), Limit.per_day("tpd", 10_000)]
        )
        yield limiter


@pytest.fixture
def serve(url, limiter):
    """Return a function that starts a service with some settings."""
    started = []

    def start(**options):
        place, page = options.pop("place", None), options.pop("page", None)
        service = ThreadedService(
            service_settings(url=options.pop("url", url), **options), place, page
        )
        started.append(service)
        return service

    yield start
    for service in started:
        service.stop()


@pytest.fixture
def client(serve):
    return serve().client()


@pytest.fixture
def tokens(tmp_path):
    """A file with a token for each role, whose tokens are ``secret-<name>``."""
    lines = ["tokens:"]
    for name, role in TOKENS.items():
        digest = hashlib.sha256(f"secret-{name}".encode()).hexdigest()
        lines.append(f"  - {{name: {name}, sha256: {digest}, role: {role}, namespaces: [default]}}")
    path = tmp_path / "tokens.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
