import pytest


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def any_url(request):
    """An empty store of each engine."""
    return request.getfixturevalue(f"{request.param}_url")
