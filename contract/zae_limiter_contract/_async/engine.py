"""The whole suite in one class."""

from __future__ import annotations

from zae_limiter_contract._async.amounts import AmountContract
from zae_limiter_contract._async.audit import AuditContract
from zae_limiter_contract._async.buckets import BucketContract
from zae_limiter_contract._async.cascade import CascadeContract
from zae_limiter_contract._async.cascade_leases import CascadeLeaseContract
from zae_limiter_contract._async.changed_leases import ChangedLeaseContract
from zae_limiter_contract._async.clocks import ClockContract
from zae_limiter_contract._async.concurrency import ConcurrencyContract
from zae_limiter_contract._async.config_batches import ConfigBatchContract
from zae_limiter_contract._async.dead_calls import DeadCallContract
from zae_limiter_contract._async.debts import DebtContract
from zae_limiter_contract._async.entities import EntityContract
from zae_limiter_contract._async.idle import IdleContract
from zae_limiter_contract._async.leases import LeaseContract
from zae_limiter_contract._async.lifecycle import LifecycleContract
from zae_limiter_contract._async.limit_lives import LimitLifeContract
from zae_limiter_contract._async.live_changes import LiveChangeContract
from zae_limiter_contract._async.llm_calls import LlmCallContract
from zae_limiter_contract._async.manifests import ManifestContract
from zae_limiter_contract._async.missing import MissingContract
from zae_limiter_contract._async.modes import ModeContract
from zae_limiter_contract._async.money_usage import MoneyUsageContract
from zae_limiter_contract._async.namespaces import NamespaceContract
from zae_limiter_contract._async.observing import HookContract, ShadowContract
from zae_limiter_contract._async.outage import OutageContract
from zae_limiter_contract._async.overrides import OverrideContract
from zae_limiter_contract._async.parents import ParentContract
from zae_limiter_contract._async.pausing import PauseContract, PausedLineContract
from zae_limiter_contract._async.pending_ends import PendingEndContract
from zae_limiter_contract._async.precedence import PrecedenceContract
from zae_limiter_contract._async.priced_calls import PricedCallContract
from zae_limiter_contract._async.processes import ProcessContract
from zae_limiter_contract._async.purges import PurgeContract
from zae_limiter_contract._async.quotas import QuotaContract
from zae_limiter_contract._async.rates import RateContract
from zae_limiter_contract._async.reach import ReachContract
from zae_limiter_contract._async.refusals import RefusalContract
from zae_limiter_contract._async.rejections import RejectionContract
from zae_limiter_contract._async.remaining import RemainingContract
from zae_limiter_contract._async.replaced_limits import (
    RemovedLimitContract,
    ReplacedLimitsContract,
)
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
from zae_limiter_contract._async.usage import UsageContract
from zae_limiter_contract._async.usage_queries import UsageQueryContract
from zae_limiter_contract._async.validation import ValidationContract
from zae_limiter_contract._async.waiting import WaitingContract
from zae_limiter_contract.cancellation import CancellationContract  # unasync: remove
from zae_limiter_contract.cancelled_waiting import CancelledWaitingContract  # unasync: remove

# sync: from zae_limiter_contract.interrupted_changes import InterruptedChangeContract
# sync: from zae_limiter_contract.interrupted_waiting import InterruptedWaitingContract
# sync: from zae_limiter_contract.interrupts import InterruptContract


class CallerContract(
    CancellationContract,  # unasync: remove
    ConcurrencyContract,
    # sync: InterruptContract,
    # sync: InterruptedChangeContract,
    OutageContract,
    PendingEndContract,
    ProcessContract,
    SeveralCallersContract,
    SharedLeaseContract,
    SlotContract,
    ThresholdCallerContract,
):
    """Concurrent and interrupted callers, and outages: tasks and threads differ here."""


class CostContract(
    CascadeContract,
    CascadeLeaseContract,
    LeaseContract,
    LlmCallContract,
    PricedCallContract,
    RollbackContract,
    SettledQuotaContract,
    SettlingContract,
    SeveralResourcesContract,
):
    """The cost of a lease in the end, for all buckets that it charges."""


class ArithmeticContract(
    AmountContract,
    BucketContract,
    ChangedLeaseContract,
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
    RetryAfterContract,
    ShadowContract,
    SkewContract,
    ThresholdContract,
):
    """The arithmetic of limits for one caller, to the millitoken and the millisecond."""


class LevelContract(CallerContract, CostContract, ArithmeticContract):
    """The levels of buckets."""


class RecordContract(
    AuditContract,
    ClockContract,
    ConfigBatchContract,
    DeadCallContract,
    EntityContract,
    LifecycleContract,
    ManifestContract,
    MissingContract,
    MoneyUsageContract,
    NamespaceContract,
    ParentContract,
    PrecedenceContract,
    PurgeContract,
    ReachContract,
    RefusalContract,
    RejectionContract,
    RemovedLimitContract,
    ReplacedLimitsContract,
    UsageContract,
    UsageQueryContract,
    ValidationContract,
):
    """The data beside buckets, and the opening and closing of a store."""


class LineContract(
    CancelledWaitingContract,  # unasync: remove
    # sync: InterruptedWaitingContract,
    PausedLineContract,
    WaitingContract,
):
    """Callers that wait for capacity are served in the order of their arrival."""


class EngineContract(LevelContract, LineContract, RecordContract):
    """All promises of every engine."""
