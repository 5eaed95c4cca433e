"""OpenTelemetry metrics and spans over the hooks of a limiter. Needs the extra ``otel``.

>>> limiter = RateLimiter(repository, hooks=OpenTelemetryHooks())

| metric | kind | attributes |
|---|---|---|
| ``zae_limiter.calls`` | counter | resource, result |
| ``zae_limiter.acquire.duration`` | histogram, s | resource, result |
| ``zae_limiter.rejections`` | counter, by limit that held too few | resource, limit, result |
| ``zae_limiter.tokens.used`` | counter, when a block ends | resource, limit |
| ``zae_limiter.tokens.refunded`` | counter, credits at the end of a block | resource, limit |
| ``zae_limiter.block.duration`` | histogram, s | resource, failed |
| ``zae_limiter.settlements.lost`` | counter | resource |
| ``zae_limiter.thresholds`` | counter, of quotas and budgets | resource, limit, percent |
| ``zae_limiter.exhausted`` | counter, first rejections in a window | resource, limit |

``result`` is ``granted``, ``rejected``, ``shadowed``, ``unavailable`` (blocked in an outage) or
``uncharged`` (let through in an outage). A call that the shadow mode of a bucket has charged is a
granted call, and its limits that held too little are ``shadowed`` rejections. The entity is not an
attribute, since there may be millions. Only the first ``max_resources`` names of resources, and of
limits, are used; all others are called ``_other_``.

Amounts of budgets are in currency units: floats in metrics, and text in spans, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any

from zae_limiter._version import __version__
from zae_limiter.extras import needs
from zae_limiter.hooks import (
    AcquireEvent,
    ExhaustedEvent,
    Hooks,
    OutageEvent,
    RejectEvent,
    SettleEvent,
    ShadowEvent,
    ThresholdEvent,
)
from zae_limiter.models.limit import plain_amounts

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ImportError(needs("zae_limiter.telemetry", "OpenTelemetry", "otel")) from error

if TYPE_CHECKING:
    from decimal import Decimal

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    Event = AcquireEvent | RejectEvent | SettleEvent | OutageEvent | ThresholdEvent | ExhaustedEvent

OTHER = "_other_"  # names of resources and limits do not begin with an underscore
MAX_RESOURCES = 200  # with 5 results, a metric has a thousand series, which exporters can handle
# In seconds. An acquire takes microseconds in memory, and milliseconds over a network.
ACQUIRE_BOUNDARIES_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5)
BLOCK_BOUNDARIES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
NS_PER_S = 1_000_000_000


class OpenTelemetryHooks(Hooks):
    """Counts calls and tokens, and makes a span of every acquire as a child of the current span.

    By default the global providers are used. ``attributes`` is a function of the event that returns
    more attributes for metrics and spans; keep the number of their values small. With
    ``spans=False`` there are metrics only.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        spans: bool = True,
        attributes: Callable[[Event], Mapping[str, Any]] | None = None,
        max_resources: int = MAX_RESOURCES,
    ) -> None:
        meter = metrics.get_meter("zae_limiter", __version__, meter_provider)
        self._tracer = (
            trace.get_tracer("zae_limiter", __version__, tracer_provider) if spans else None
        )
        self._attributes = attributes
        self._resources = BoundedNames(max_resources)
        self._limits = BoundedNames(max_resources)
        self._calls = meter.create_counter("zae_limiter.calls", "{call}", "Acquires, by result")
        self._acquire_s = meter.create_histogram(
            "zae_limiter.acquire.duration",
            "s",
            "Time of an acquire until it is decided",
            explicit_bucket_boundaries_advisory=ACQUIRE_BOUNDARIES_S,
        )
        self._rejections = meter.create_counter(
            "zae_limiter.rejections", "{rejection}", "Limits that held too few tokens"
        )
        self._used = meter.create_counter(
            "zae_limiter.tokens.used", "{token}", "Tokens that ended blocks have cost"
        )
        self._refunded = meter.create_counter(
            "zae_limiter.tokens.refunded", "{token}", "Tokens given back when blocks ended"
        )
        self._block_s = meter.create_histogram(
            "zae_limiter.block.duration",
            "s",
            "Time from an acquire to the end of its block",
            explicit_bucket_boundaries_advisory=BLOCK_BOUNDARIES_S,
        )
        self._lost = meter.create_counter(
            "zae_limiter.settlements.lost", "{settlement}", "Settlements that could not be written"
        )
        self._thresholds = meter.create_counter(
            "zae_limiter.thresholds", "{threshold}", "Thresholds of quotas and budgets, by percent"
        )
        self._exhausted = meter.create_counter(
            "zae_limiter.exhausted", "{quota}", "Quotas and budgets that rejected, once per window"
        )

    def on_acquire(self, event: AcquireEvent) -> None:
        """Count a granted acquire."""
        self._decided(event, "granted", event.consume)

    def on_reject(self, event: RejectEvent) -> None:
        """Count a rejection, and the limits that held too few tokens."""
        self._rejected(event, "rejected")

    def on_shadow(self, event: ShadowEvent) -> None:
        """Count a call that shadow mode let through.

        If it was charged, ``on_acquire`` has counted the call as granted.
        """
        if event.charged:
            self._count_violations(event, "shadowed")
        else:
            self._rejected(event, "shadowed")

    def on_outage(self, event: OutageEvent) -> None:
        """Count a call that the store did not answer."""
        result = "uncharged" if event.admitted else "unavailable"
        self._decided(event, result, {}, error=event.error)

    def on_settle(self, event: SettleEvent) -> None:
        """Count the cost of a block, and add an event to the current span."""
        common = self._common(event)
        self._block_s.record(event.duration_s, {**common, "zae_limiter.failed": event.failed})
        for name, amount in event.cost.items():
            if amount > 0:
                self._used.add(_number(amount), self._of_limit(common, name))
        for name, amount in event.written.items():
            if amount < 0:
                self._refunded.add(_number(-amount), self._of_limit(common, name))
        if event.lost:
            self._lost.add(1, common)
        if self._tracer is not None:
            costs = _amounts("cost", event.cost)
            attributes = {**common, **costs, "zae_limiter.failed": event.failed}
            trace.get_current_span().add_event("zae_limiter.settled", attributes)

    def on_threshold(self, event: ThresholdEvent) -> None:
        """Count a threshold, and add an event to the current span, if there is one."""
        common = self._of_limit(self._common(event), event.limit_name)
        attributes = {**common, "zae_limiter.percent": event.percent}
        self._thresholds.add(1, attributes)
        if self._tracer is not None:
            amounts = {
                "zae_limiter.entity": event.entity_id,
                "zae_limiter.used": str(event.used),
                "zae_limiter.amount": str(event.amount),
            }
            trace.get_current_span().add_event("zae_limiter.threshold", {**attributes, **amounts})

    def on_exhausted(self, event: ExhaustedEvent) -> None:
        """Count an exhausted quota, and add an event to the current span, if there is one."""
        attributes = self._of_limit(self._common(event), event.limit_name)
        self._exhausted.add(1, attributes)
        if self._tracer is not None:
            amounts = {
                "zae_limiter.entity": event.entity_id,
                "zae_limiter.requested": str(event.requested),
                "zae_limiter.available": str(event.available),
                "zae_limiter.amount": str(event.amount),
            }
            trace.get_current_span().add_event("zae_limiter.exhausted", {**attributes, **amounts})

    def _rejected(self, event: RejectEvent, result: str) -> None:
        self._count_violations(event, result)
        self._decided(event, result, event.consume)

    def _count_violations(self, event: RejectEvent, result: str) -> None:
        common = self._common(event)
        for status in event.violations:
            attributes = self._of_limit(common, status.limit_name)
            resource = self._resources.name(status.resource)  # one of several, with also=
            attributes |= {"zae_limiter.resource": resource, "zae_limiter.result": result}
            self._rejections.add(1, attributes)

    def _decided(
        self,
        event: AcquireEvent | RejectEvent | OutageEvent,
        result: str,
        consume: Mapping[str, int | Decimal],
        error: BaseException | None = None,
    ) -> None:
        attributes = {**self._common(event), "zae_limiter.result": result}
        self._calls.add(1, attributes)
        self._acquire_s.record(event.duration_s, attributes)
        if self._tracer is None:
            return
        end_ns = time_ns()
        span = self._tracer.start_span(
            "zae_limiter.acquire",
            start_time=end_ns - int(event.duration_s * NS_PER_S),
            attributes={**attributes, **_amounts("consume", consume)},
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        span.end(end_ns)

    def _common(self, event: Event) -> dict[str, Any]:
        attributes: dict[str, Any] = {"zae_limiter.resource": self._resources.name(event.resource)}
        if self._attributes is not None:
            attributes.update(self._attributes(event))
        return attributes

    def _of_limit(self, common: Mapping[str, Any], name: str) -> dict[str, Any]:
        return {**common, "zae_limiter.limit": self._limits.name(name)}


def _number(amount: int | Decimal) -> int | float:
    """Return an amount as exporters take it: they raise for a Decimal, and the export is lost."""
    return amount if isinstance(amount, int) else float(amount)


def _amounts(what: str, amounts: Mapping[str, int | Decimal]) -> dict[str, int | str]:
    """Return amounts as attributes of a span: money is a text, which is exact."""
    return {f"zae_limiter.{what}.{name}": each for name, each in plain_amounts(amounts).items()}


class BoundedNames:
    """Keeps the first names that come, up to a number, and calls all others ``_other_``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def name(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) < self._most:
            self._known.add(name)
            return name
        return OTHER
