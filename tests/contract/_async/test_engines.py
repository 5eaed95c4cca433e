"""The suite for the engines that come with the package."""

import pytest
from zae_limiter_contract._async.engine import EngineContract

from tests.contract._async import specs


@pytest.mark.slow  # the engine of TestNamedMemory, with stores that cannot be opened twice
class TestMemory(EngineContract):
    @pytest.fixture
    def engine_spec(self):
        return specs.private_memory()


class TestNamedMemory(EngineContract):
    @pytest.fixture
    def engine_spec(self, unique_name):
        return specs.named_memory(unique_name)


class TestSqlite(EngineContract):
    @pytest.fixture
    def engine_spec(self, tmp_path):
        return specs.sqlite(tmp_path)


class TestDynamodb(EngineContract):
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return specs.dynamodb(dynamodb_table)
