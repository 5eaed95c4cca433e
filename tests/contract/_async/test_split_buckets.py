"""The suite again, with every bucket split: no caller notices."""

import pytest
from zae_limiter_contract._async.amounts import AmountContract
from zae_limiter_contract._async.audit import AuditContract
from zae_limiter_contract._async.buckets import BucketContract
from zae_limiter_contract._async.cascade import CascadeContract
from zae_limiter_contract._async.cascade_leases import CascadeLeaseContract
from zae_limiter_contract._async.changed_leases import ChangedLeaseContract
from zae_limiter_contract._async.clocks import ClockContract
from zae_limiter_contract._async.concurrency import ConcurrencyContract
from zae_limiter_contract._async.debts import DebtContract
from zae_limiter_contract._async.entities import EntityContract
from zae_limiter_contract._async.idle import IdleContract
from zae_limiter_contract._async.leases import LeaseContract
from zae_limiter_contract._async.lifecycle import LifecycleContract
from zae_limiter_contract._async.live_changes import LiveChangeContract
from zae_limiter_contract._async.namespaces import NamespaceContract
from zae_limiter_contract._async.outage import OutageContract
from zae_limiter_contract._async.overrides import OverrideContract
from zae_limiter_contract._async.parents import ParentContract
from zae_limiter_contract._async.precedence import PrecedenceContract
from zae_limiter_contract._async.processes import ProcessContract
from zae_limiter_contract._async.purges import PurgeContract
from zae_limiter_contract._async.rates import RateContract
from zae_limiter_contract._async.reach import ReachContract
from zae_limiter_contract._async.rollback import RollbackContract
from zae_limiter_contract._async.skew import SkewContract
from zae_limiter_contract._async.usage import UsageContract
from zae_limiter_contract._async.usage_queries import UsageQueryContract
from zae_limiter_contract._async.validation import ValidationContract
from zae_limiter_contract._async.waiting import WaitingContract
from zae_limiter_contract.cancellation import CancellationContract  # unasync: remove

# sync: from zae_limiter_contract.interrupted_changes import InterruptedChangeContract
# sync: from zae_limiter_contract.interrupts import InterruptContract
from tests.contract._async.splitting import split_dynamodb


class SplitBuckets:
    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table)


# sync: @pytest.mark.slow  # generated from the async tree, whose run stays fast
class TestSplitBuckets(
    SplitBuckets,
    CancellationContract,  # unasync: remove
    # sync: InterruptContract,
    AmountContract,
    BucketContract,
    CascadeContract,
    CascadeLeaseContract,
    ChangedLeaseContract,
    ConcurrencyContract,
    DebtContract,
    IdleContract,
    LeaseContract,
    LiveChangeContract,
    OutageContract,
    OverrideContract,
    ProcessContract,
    RateContract,
    RollbackContract,
    SkewContract,
    WaitingContract,
):
    """Groups about the levels of buckets."""


@pytest.mark.slow  # all but the levels is as without a split
class TestAroundSplitBuckets(
    SplitBuckets,
    # sync: InterruptedChangeContract,
    AuditContract,
    ClockContract,
    EntityContract,
    LifecycleContract,
    NamespaceContract,
    ParentContract,
    PrecedenceContract,
    PurgeContract,
    ReachContract,
    UsageContract,
    UsageQueryContract,
    ValidationContract,
):
    """The other groups."""
