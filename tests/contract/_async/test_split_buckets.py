"""The suite again, with every bucket split: no caller notices."""

import pytest
from zae_limiter_contract._async.engine import LevelContract, RecordContract

from tests.contract._async.splitting import split_dynamodb


class SplitBuckets:
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table)


# sync: @pytest.mark.slow  # generated from the async tree, whose run stays fast
class TestSplitBuckets(SplitBuckets, LevelContract):
    """The levels of buckets."""


@pytest.mark.slow  # all but the levels is as without a split
class TestAroundSplitBuckets(SplitBuckets, RecordContract):
    """The other groups."""
