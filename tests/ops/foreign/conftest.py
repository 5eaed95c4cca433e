import pytest


@pytest.fixture(autouse=True)
def local(monkeypatch):
    """The commands name their table themselves."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for name in ("ZAEL_URL", "ZAEL_STACK", "ZAEL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
