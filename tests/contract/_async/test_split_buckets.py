"""Nobody notices that a bucket has been split."""

import pytest

from tests.contract._async.splitting import split_dynamodb
from zae_limiter.testing.contract._async.engine import EngineContract


class TestSplitBuckets(EngineContract):
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table)
