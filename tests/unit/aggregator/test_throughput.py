"""The throughput of the function in records, without the time of its calls."""

import gc
import json
import time
import tracemalloc
from collections import deque
from itertools import count

from tests.unit.aggregator.test_processor import turns
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.report import Log

ROUNDS = 12


class Counting:
    """Takes encoded requests, and answers at once."""

    table = "my-table"

    def __init__(self):
        self.calls = deque(maxlen=1)
        self._numbers = count(1)

    def call(self, operation, body):
        if operation == "UpdateItem":
            assert body.encode()
            self.calls.append(next(self._numbers))
        return {}


def process(processor, records):
    result = processor.process(records, Log(output=lambda line: None), time.monotonic() + 60)
    assert result.snapshots_updated == len(records)


def test_memory_is_flat():
    processor, records = Processor(Counting()), turns(200)
    for _ in range(3):
        process(processor, records)
    tracemalloc.start()
    try:
        for _ in range(3):
            process(processor, records)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            process(processor, records)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        processor.close()
    assert after - before < 50_000


PER_SECOND = 20_000
JSON_US = 12.0  # of parsing a record, on an idle machine that others are compared with


def test_a_core_processes_twenty_thousand_records_a_second():
    """Each is parsed, and its two requests are encoded; measured in time of the CPU.

    Beside it the JSON of the same records is parsed, which a busy machine slows down alike.
    """
    calls, records = Counting(), turns(1000)
    processor, text = Processor(calls), json.dumps(records)
    process(processor, records)
    record_us, json_us = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        process(processor, records)
        between = time.process_time()
        json.loads(text)
        record_us.append((between - began) / len(records) * 1e6)
        json_us.append((time.process_time() - between) / len(records) * 1e6)
    processor.close()
    assert max(calls.calls) >= (ROUNDS + 1) * 2 * len(records) - 16  # the last of each thread
    assert min(record_us) / min(json_us) * JSON_US <= 1e6 / PER_SECOND, (record_us, json_us)
