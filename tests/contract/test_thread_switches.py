"""The groups about concurrency again, with a thread switch after almost every instruction."""

import sys

import pytest
from zae_limiter_contract._sync.concurrency import ConcurrencyContract

from tests.contract._sync import specs


@pytest.fixture(autouse=True)
def frantic_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class TestMemory(ConcurrencyContract):
    @pytest.fixture
    def engine_spec(self, unique_name):
        return specs.named_memory(unique_name)


class TestSqlite(ConcurrencyContract):
    @pytest.fixture
    def engine_spec(self, tmp_path):
        return specs.sqlite(tmp_path)


class TestDynamodb(ConcurrencyContract):
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return specs.dynamodb(dynamodb_table)
