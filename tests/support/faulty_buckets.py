"""A real store in memory whose settlements can be made to fail, in every way that there is."""

from enum import Enum

from zae_limiter import RateLimiterUnavailable, SyncRepository
from zae_limiter._sync.engines.memory import open_memory
from zae_limiter.settings import Settings
from zae_limiter.store_url import parse_url


class Fault(Enum):
    """What becomes of a settlement."""

    NONE = "written"
    NOT_WRITTEN = "certainly not written"
    UNKNOWN_WRITTEN = "written, but the answer is lost"
    UNKNOWN_NOT_WRITTEN = "not written, which no client knows"


class FaultyBuckets:
    """The buckets of an engine; settlements fail as ``fault`` says, after ``meanwhile`` has run.

    Renewals are made and counted.
    """

    def __init__(self, buckets):
        self._buckets = buckets
        self.fault = Fault.NONE
        self.renewals = 0
        self.error = RateLimiterUnavailable
        self.meanwhile = lambda: None

    def __getattr__(self, name):
        return getattr(self._buckets, name)

    def renew(self, *args):
        self.renewals += 1
        return self._buckets.renew(*args)

    def settle(self, namespace_id, settlements, clock, receipt, on_threshold=None):
        fault, meanwhile = self.fault, self.meanwhile
        self.meanwhile = lambda: None
        if fault in (Fault.NONE, Fault.UNKNOWN_WRITTEN):
            self._buckets.settle(namespace_id, settlements, clock, receipt, on_threshold)
        meanwhile()
        if fault is Fault.NONE:
            return
        if fault is not Fault.NOT_WRITTEN:
            receipt.outcome = None  # its outcome is unknown: it must not be repeated
        raise self.error("a fault")


def open_faulty(clock, url="memory://"):
    """Return a repository in memory, and its buckets."""
    engine = open_memory(parse_url(url), Settings())
    buckets = engine.buckets = FaultyBuckets(engine.buckets)
    return SyncRepository.builder().clock(clock).over(engine), buckets
