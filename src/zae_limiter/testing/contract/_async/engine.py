"""The whole suite in one class."""

from __future__ import annotations

from zae_limiter.testing.contract._async.amounts import AmountContract
from zae_limiter.testing.contract._async.debts import DebtContract
from zae_limiter.testing.contract._async.idle import IdleContract
from zae_limiter.testing.contract._async.leases import LeaseContract
from zae_limiter.testing.contract._async.rates import RateContract
from zae_limiter.testing.contract._async.rollback import RollbackContract
from zae_limiter.testing.contract._async.skew import SkewContract
from zae_limiter.testing.contract._async.waiting import WaitingContract
from zae_limiter.testing.contract.cancellation import CancellationContract  # unasync: remove

# sync: from zae_limiter.testing.contract.interrupts import InterruptContract


class EngineContract(
    AmountContract,
    CancellationContract,  # unasync: remove
    DebtContract,
    IdleContract,
    # sync: InterruptContract,
    LeaseContract,
    RateContract,
    RollbackContract,
    SkewContract,
    WaitingContract,
):
    """All that every engine promises."""
