"""Metrics and spans, read back from the SDK of OpenTelemetry."""

from contextlib import suppress

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from zae_limiter import (
    Limit,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.telemetry import OTHER, OpenTelemetryHooks
from zae_limiter.testing import FakeClock, outage

LIMITS = [Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)]


class Telemetry:
    """Providers of its own, and what they were given."""

    def __init__(self):
        self._reader, self._exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters = MeterProvider([self._reader])
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))

    def hooks(self, **settings):
        return OpenTelemetryHooks(self.meters, self.tracers, **settings)

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def points(self):
        """Every data point, by the name of its metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        found = {}
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "zae_limiter"
                for metric in scope.metrics:
                    found[metric.name.removeprefix("zae_limiter.")] = list(metric.data.data_points)
        return found

    def counts(self, name):
        """The values of a counter, by the attributes that matter."""
        return {_key(point): point.value for point in self.points().get(name, [])}


def _key(point):
    return tuple(value for _, value in sorted(point.attributes.items()))


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.meters.shutdown()
    made.tracers.shutdown()


@pytest.fixture
def repository():
    with SyncRepository.open(url="memory://", clock=FakeClock()) as opened:
        opened.set_system_defaults(LIMITS)
        yield opened


def test_calls_are_counted_and_timed_by_resource_and_result(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    for _ in range(2):
        with limiter.acquire("user", "api", {"rpm": 4}):
            pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("user", "api", {"rpm": 4}):
        pass
    with limiter.acquire("user", "api", {"rpm": 4, "tpm": 1001}, mode="shadow"):
        pass
    with outage(limiter):
        with pytest.raises(RateLimiterUnavailable), limiter.acquire("user", "api", {}):
            pass
        with limiter.acquire("user", "api", {}, on_unavailable="allow"):
            pass
    assert telemetry.counts("calls") == {
        ("api", "granted"): 2,
        ("api", "rejected"): 1,
        ("api", "shadowed"): 1,
        ("api", "unavailable"): 1,
        ("api", "uncharged"): 1,
    }
    durations = telemetry.points()["acquire.duration"]
    assert {_key(point): point.count for point in durations} == telemetry.counts("calls")
    assert telemetry.counts("rejections") == {
        ("rpm", "api", "rejected"): 1,
        ("rpm", "api", "shadowed"): 1,
        ("tpm", "api", "shadowed"): 1,
    }


def test_a_call_that_a_bucket_in_shadow_mode_has_charged_is_granted(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    repository.set_mode("api", mode="shadow")
    with limiter.acquire("user", "api", {"rpm": 11}):
        pass
    assert telemetry.counts("calls") == {("api", "granted"): 1}
    assert telemetry.counts("rejections") == {("rpm", "api", "shadowed"): 1}


def test_tokens_are_counted_when_the_block_ends(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks(spans=False))
    with limiter.acquire("user", "api", {"rpm": 1, "tpm": 500}) as lease:
        lease.settle(tpm=620)
    with suppress(ArithmeticError), limiter.acquire("user", "api", {"tpm": 100}) as lease:
        lease.settle(tpm=30)
        raise ArithmeticError
    assert telemetry.counts("tokens.used") == {("rpm", "api"): 1, ("tpm", "api"): 650}
    assert telemetry.counts("tokens.refunded") == {("tpm", "api"): 70}
    blocks = {_key(point): point.count for point in telemetry.points()["block.duration"]}
    assert blocks == {(False, "api"): 1, (True, "api"): 1}
    assert telemetry.spans == ()


def test_a_settlement_that_is_lost_is_counted(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    fault = outage(limiter)
    with limiter.acquire("user", "api", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)
        fault.__enter__()
    assert telemetry.counts("settlements.lost") == {}
    repository.close(timeout=0)
    fault.__exit__(None, None, None)
    assert telemetry.counts("settlements.lost") == {("api",): 1}


def test_every_acquire_is_a_span_of_the_current_one(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    tracer = telemetry.tracers.get_tracer("test")
    with tracer.start_as_current_span("request"), limiter.acquire("user", "api", {"rpm": 1}):
        pass
    acquire, request = telemetry.spans
    assert (acquire.name, request.name) == ("zae_limiter.acquire", "request")
    assert acquire.parent.span_id == request.context.span_id
    assert request.start_time <= acquire.start_time < acquire.end_time <= request.end_time
    assert dict(acquire.attributes) == {
        "zae_limiter.resource": "api",
        "zae_limiter.result": "granted",
        "zae_limiter.consume.rpm": 1,
    }
    (settled,) = request.events
    assert (settled.name, settled.attributes["zae_limiter.cost.rpm"]) == ("zae_limiter.settled", 1)


def test_a_span_of_an_outage_carries_the_error(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    with outage(limiter), pytest.raises(RateLimiterUnavailable):
        limiter.acquire("user", "api", {"rpm": 1}).__enter__()
    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_no_attribute_has_more_values_than_allowed_and_none_is_an_entity(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks(max_resources=3))
    for number in range(8):
        with limiter.acquire(f"user-{number}", f"api-{number}", {"rpm": 1}):
            pass
    assert telemetry.counts("calls") == {
        ("api-0", "granted"): 1,
        ("api-1", "granted"): 1,
        ("api-2", "granted"): 1,
        (OTHER, "granted"): 5,
    }
    values = {
        value
        for points in telemetry.points().values()
        for point in points
        for value in point.attributes.values()
    }
    assert not [value for value in values if str(value).startswith("user")]


def test_attributes_of_ones_own_are_added(telemetry, repository):
    hooks = telemetry.hooks(attributes=lambda event: {"tier": event.entity_id.partition("-")[0]})
    limiter = SyncRateLimiter(repository, hooks=hooks)
    with limiter.acquire("gold-17", "api", {"rpm": 1}):
        pass
    assert telemetry.counts("calls") == {("gold", "api", "granted"): 1}
    assert telemetry.spans[0].attributes["tier"] == "gold"


def test_exhausted_budgets_are_counted_and_are_events_of_the_current_span(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    budget = Limit.budget("usd", "2.00", per="month")
    with (
        telemetry.tracers.get_tracer("test").start_as_current_span("request"),
        limiter.acquire("user", "api", {"usd": "1.75"}, [budget]),
    ):
        for _ in range(2):
            with pytest.raises(RateLimitExceeded):
                limiter.acquire("user", "api", {"usd": "0.50"}, [budget]).__enter__()
    assert telemetry.counts("exhausted") == {("usd", "api"): 1}
    [span] = [each for each in telemetry.spans if each.name == "request"]
    [raised] = [event for event in span.events if event.name == "zae_limiter.exhausted"]
    assert dict(raised.attributes) == {
        "zae_limiter.resource": "api",
        "zae_limiter.limit": "usd",
        "zae_limiter.entity": "user",
        "zae_limiter.requested": "0.50",
        "zae_limiter.available": "0.25",
        "zae_limiter.amount": "2.00",
    }


def test_thresholds_are_counted_and_are_events_of_the_current_span(telemetry, repository):
    limiter = SyncRateLimiter(repository, hooks=telemetry.hooks())
    budget = Limit.budget("usd", "2.00", per="month")
    with (
        telemetry.tracers.get_tracer("test").start_as_current_span("request"),
        limiter.acquire("user", "api", {"usd": "1.75"}, [budget]),
    ):
        pass
    assert telemetry.counts("thresholds") == {("usd", 50, "api"): 1, ("usd", 80, "api"): 1}
    [span] = [each for each in telemetry.spans if each.name == "request"]
    raised = [event for event in span.events if event.name == "zae_limiter.threshold"]
    assert [event.attributes["zae_limiter.percent"] for event in raised] == [50, 80]
    assert dict(raised[0].attributes) == {
        "zae_limiter.resource": "api",
        "zae_limiter.limit": "usd",
        "zae_limiter.percent": 50,
        "zae_limiter.entity": "user",
        "zae_limiter.used": "1.75",
        "zae_limiter.amount": "2.00",
    }
