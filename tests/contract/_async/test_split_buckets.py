"""The suite again, with every bucket split: no caller notices."""

import pytest
from zae_limiter_contract._async.engine import EngineContract

from tests.contract._async.splitting import split_dynamodb


class TestSplitBuckets(EngineContract):
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table)
