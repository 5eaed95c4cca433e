"""Limiters and repositories belong to their process."""

import copy
import pickle

import pytest

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository


@pytest.mark.parametrize("kind", [RateLimiter, SyncRateLimiter])
@pytest.mark.parametrize("handed_over", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_limiter_that_is_handed_over_says_what_to_do(kind, handed_over):
    with pytest.raises(TypeError, match=f"pass its URL .* and make a {kind.__name__} there"):
        handed_over(kind(url="memory://"))


def test_an_open_limiter_and_its_repository_say_what_to_do():
    with SyncRepository.open(url="memory://") as repository:
        for each in (repository, SyncRateLimiter(repository)):
            with pytest.raises(TypeError, match=f"make a {type(each).__name__} there"):
                pickle.dumps(each)


async def test_an_open_async_repository_says_what_to_do():
    async with Repository.open(url="memory://") as repository:
        with pytest.raises(TypeError, match="make a Repository there"):
            pickle.dumps(repository)
