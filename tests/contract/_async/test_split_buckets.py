"""The suite again, with every bucket split: no caller notices."""

import pytest
from zae_limiter_contract._async.amounts import AmountContract
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.buckets import BucketContract
from zae_limiter_contract._async.cascade import CascadeContract
from zae_limiter_contract._async.cascade_leases import CascadeLeaseContract
from zae_limiter_contract._async.changed_leases import ChangedLeaseContract
from zae_limiter_contract._async.concurrency import ConcurrencyContract
from zae_limiter_contract._async.debts import DebtContract
from zae_limiter_contract._async.engine import RecordContract
from zae_limiter_contract._async.idle import IdleContract
from zae_limiter_contract._async.leases import LeaseContract
from zae_limiter_contract._async.limit_lives import LimitLifeContract
from zae_limiter_contract._async.live_changes import LiveChangeContract
from zae_limiter_contract._async.llm_calls import LlmCallContract
from zae_limiter_contract._async.modes import ModeContract
from zae_limiter_contract._async.observing import HookContract, ShadowContract
from zae_limiter_contract._async.outage import OutageContract
from zae_limiter_contract._async.overrides import OverrideContract
from zae_limiter_contract._async.pausing import PauseContract
from zae_limiter_contract._async.pending_ends import PendingEndContract
from zae_limiter_contract._async.priced_calls import PricedCallContract
from zae_limiter_contract._async.processes import ProcessContract
from zae_limiter_contract._async.quotas import QuotaContract
from zae_limiter_contract._async.rates import RateContract
from zae_limiter_contract._async.remaining import RemainingContract
from zae_limiter_contract._async.retry_after import RetryAfterContract
from zae_limiter_contract._async.rollback import RollbackContract
from zae_limiter_contract._async.settled_quotas import SettledQuotaContract
from zae_limiter_contract._async.settling import SettlingContract
from zae_limiter_contract._async.several_resources import (
    SeveralCallersContract,
    SeveralResourcesContract,
)
from zae_limiter_contract._async.shared_leases import SharedLeaseContract
from zae_limiter_contract._async.skew import SkewContract
from zae_limiter_contract._async.slots import SlotContract
from zae_limiter_contract._async.thresholds import ThresholdCallerContract, ThresholdContract
from zae_limiter_contract.cancellation import CancellationContract  # unasync: remove

# sync: from zae_limiter_contract.interrupted_changes import InterruptedChangeContract
# sync: from zae_limiter_contract.interrupts import InterruptContract
from tests.contract._async.splitting import split_dynamodb


class SplitBuckets:
    @pytest.fixture
    def engine_spec(self, request, dynamodb_table):
        return split_dynamodb(dynamodb_table, request.fixturenames)


# sync: @pytest.mark.slow  # generated from the async tree, whose run stays fast
class TestSplitBuckets(
    SplitBuckets,
    AmountContract,
    CancellationContract,  # unasync: remove
    CascadeContract,
    ChangedLeaseContract,
    ConcurrencyContract,
    RetryAfterContract,
    RollbackContract,
    SettlingContract,
):
    """Callers side by side, and what levels become."""


@pytest.mark.slow  # a lease, a slot and an outage are as without a split
class TestCallersOfSplitBuckets(
    SplitBuckets,
    CascadeLeaseContract,
    # sync: InterruptContract,
    # sync: InterruptedChangeContract,
    LeaseContract,
    LlmCallContract,
    OutageContract,
    PendingEndContract,
    PricedCallContract,
    ProcessContract,
    SettledQuotaContract,
    SeveralCallersContract,
    SeveralResourcesContract,
    SharedLeaseContract,
    SlotContract,
    ThresholdCallerContract,
):
    """The other groups about callers and leases."""


# sync: @pytest.mark.slow
class TestHistoryOfSplitBuckets(SplitBuckets, Contract):
    """A sample of the rates, all of which are slow."""

    test_a_random_history = (
        RateContract.test_a_random_history_agrees_with_exact_arithmetic_to_a_millitoken
    )


@pytest.mark.slow  # which limits apply is decided before a shard is; a shard has the usual rates
class TestRulesOfSplitBuckets(
    SplitBuckets,
    BucketContract,
    DebtContract,
    HookContract,
    IdleContract,
    LimitLifeContract,
    LiveChangeContract,
    ModeContract,
    OverrideContract,
    PauseContract,
    QuotaContract,
    RateContract,
    RemainingContract,
    SettledQuotaContract,
    ShadowContract,
    SkewContract,
    ThresholdContract,
):
    """What one caller gets under which limits."""


@pytest.mark.slow  # all but the levels is as without a split
class TestAroundSplitBuckets(SplitBuckets, RecordContract):
    """The other groups."""
