"""The suite for the engines that come with the package.

Of the tree that is generated, only the groups about callers run with the fast tests where they need
a file or a server: the calls of the others are those of the async tree, and memory runs all groups
in both (docs/contributing/testing.md).
"""

import pytest
from zae_limiter_contract._async.engine import (
    ArithmeticContract,
    CallerContract,
    CostContract,
    EngineContract,
    LineContract,
    RecordContract,
)

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


class OnSqlite:
    @pytest.fixture
    def engine_spec(self, tmp_path):
        return specs.sqlite(tmp_path)


class TestSqlite(OnSqlite, CallerContract, LineContract):
    """Callers side by side, cut off, failing or waiting."""


# sync: @pytest.mark.slow
class TestSqliteCosts(OnSqlite, CostContract):
    """What a lease costs."""


@pytest.mark.slow  # memory runs the same operations
class TestSqliteArithmetic(OnSqlite, ArithmeticContract):
    """What one caller gets."""


# sync: @pytest.mark.slow
class TestSqliteRecords(OnSqlite, RecordContract):
    """The other groups."""


class OnDynamodb:
    @pytest.fixture
    def engine_spec(self, request, dynamodb_table):
        return specs.dynamodb(dynamodb_table, request.fixturenames)


class TestDynamodb(OnDynamodb, CallerContract, LineContract):
    """Callers side by side, cut off, failing or waiting."""


# sync: @pytest.mark.slow
class TestDynamodbCosts(OnDynamodb, CostContract):
    """What a lease costs."""


# sync: @pytest.mark.slow
class TestDynamodbArithmetic(OnDynamodb, ArithmeticContract):
    """What one caller gets."""


# sync: @pytest.mark.slow
class TestDynamodbRecords(OnDynamodb, RecordContract):
    """The other groups."""
