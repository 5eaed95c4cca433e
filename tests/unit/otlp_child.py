"""Spends a budget, and prints what an exporter of OTLP sends of it, whose packages are apart."""

# ruff: noqa: E402 - the folder of packages comes first

import json
import sys

import opentelemetry

opentelemetry.__path__.insert(0, f"{sys.argv[1]}/opentelemetry")

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

from tests.unit.test_telemetry_exporters import spend

reader, exporter, tracers = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
spend(MeterProvider([reader]), tracers)
message = encode_metrics(reader.get_metrics_data())
points = {
    metric.name: metric.sum.data_points[0].as_double
    for metric in message.resource_metrics[0].scope_metrics[0].metrics
    if metric.HasField("sum")
}
json.dump({"points": points, "spans": str(encode_spans(exporter.get_finished_spans()))}, sys.stdout)
