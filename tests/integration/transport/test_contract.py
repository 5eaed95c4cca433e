"""What engines promise where the transport matters, over botocore's HTTP stack."""

import pytest

from tests.contract._async import specs
from tests.contract._sync import specs as sync_specs
from tests.contract.engines import DYNAMODB, dynamodb_url
from zae_limiter.testing.contract import cancellation, interrupts
from zae_limiter.testing.contract._async import cascade_leases, concurrency, outage, rollback
from zae_limiter.testing.contract._sync import cascade_leases as sync_cascade_leases
from zae_limiter.testing.contract._sync import concurrency as sync_concurrency
from zae_limiter.testing.contract._sync import outage as sync_outage
from zae_limiter.testing.contract._sync import rollback as sync_rollback
from zae_limiter.testing.dynamodb.tables import temporary_table


@pytest.fixture
def url():
    with temporary_table() as table:
        yield f"{dynamodb_url(table)}&transport=sdk"


class TestAsync(
    cancellation.CancellationContract,
    cascade_leases.CascadeLeaseContract,
    concurrency.ConcurrencyContract,
    outage.OutageContract,
    rollback.RollbackContract,
):
    @pytest.fixture
    def engine_spec(self, url):
        return specs.DynamoSpec(url, DYNAMODB)


class TestSync(
    interrupts.InterruptContract,
    sync_cascade_leases.CascadeLeaseContract,
    sync_concurrency.ConcurrencyContract,
    sync_outage.OutageContract,
    sync_rollback.RollbackContract,
):
    @pytest.fixture
    def engine_spec(self, url):
        return sync_specs.DynamoSpec(url, DYNAMODB)
