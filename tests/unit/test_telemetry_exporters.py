"""Metrics and spans of a budget, written by the exporters that programs use."""

import json
import logging
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from prometheus_client import REGISTRY, generate_latest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.telemetry import OpenTelemetryHooks
from zae_limiter.testing import FakeClock

ROOT = Path(__file__).parents[2]
OTLP = ROOT / ".tools" / "otlp"
BUDGET = Limit.budget("usd", "10.00", per="month")


def spend(meters, tracers):
    """Reserve 2.50 of a budget and spend 1.25."""
    hooks = OpenTelemetryHooks(meters, tracers)
    with SyncRepository.open(url="memory://", clock=FakeClock()) as repository:
        limiter = SyncRateLimiter(repository, hooks=hooks)
        with (
            tracers.get_tracer("test").start_as_current_span("request"),
            limiter.acquire("user", "api", {"usd": "2.50"}, [BUDGET]) as lease,
        ):
            lease.settle(usd="1.25")


@pytest.fixture
def tracers():
    made = TracerProvider()
    yield made
    made.shutdown()


def test_the_console_exporter_writes_money_as_numbers_and_text(tracers, caplog):
    metrics, spans = StringIO(), StringIO()
    tracers.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=spans)))
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=metrics))
    meters = MeterProvider([reader])
    with caplog.at_level(logging.WARNING):
        spend(meters, tracers)
        meters.shutdown()
    assert not caplog.records
    found = _values(json.loads(metrics.getvalue()))
    assert (found["zae_limiter.tokens.used"], found["zae_limiter.tokens.refunded"]) == (1.25, 1.25)
    assert '"zae_limiter.consume.usd": "2.50' in spans.getvalue()
    assert '"zae_limiter.cost.usd": "1.25' in spans.getvalue()


def _values(written):
    scopes = [scope for each in written["resource_metrics"] for scope in each["scope_metrics"]]
    return {
        metric["name"]: metric["data"]["data_points"][0].get("value")
        for scope in scopes
        for metric in scope["metrics"]
    }


def test_otlp_carries_money_as_numbers_and_text():
    """In a process of its own: Envoy's messages come with other files of the same names."""
    assert OTLP.is_dir(), "make test installs the encoder of OTLP"
    command = [sys.executable, "-m", "tests.unit.otlp_child", str(OTLP)]
    sent = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    assert sent["points"]["zae_limiter.tokens.used"] == 1.25
    assert sent["points"]["zae_limiter.tokens.refunded"] == 1.25
    assert "zae_limiter.consume.usd" in sent["spans"]
    assert "zae_limiter.cost.usd" in sent["spans"]


def test_prometheus_shows_money_as_numbers(tracers):
    meters = MeterProvider([PrometheusMetricReader()])
    spend(meters, tracers)
    shown = generate_latest(REGISTRY).decode()
    meters.shutdown()
    used = [line for line in shown.splitlines() if line.startswith("zae_limiter_tokens_used")]
    assert [float(line.rpartition(" ")[2]) for line in used] == [1.25]
