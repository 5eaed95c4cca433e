"""The requirements of the DynamoDB engine."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.arrivals import PER_SECOND
from benchmarks.cases import ASYNC, ASYNC_CROWD, ASYNC_TASKS, ASYNC_TASKS_MANY, SYNC
from benchmarks.crowd import CROWD, HALF_LOAD, PROCESSES, Crowd
from benchmarks.runner import Results
from benchmarks.verdict import Verdict, ratio_verdict, unknown

OURS = "zae-limiter dynamodb"
AIO, BOTO = "plain aiobotocore", "plain boto3"
ON_REDIS = (
    "limits fixed window, redis",
    "throttled-py token bucket, redis",
    "throttled-py fixed window, redis",
)


def server_verdicts(results: Results) -> list[Verdict]:
    """In the order of the table."""
    return [
        *_cpu(results),
        *_hot_bucket(results),
        *_redis(results),
        *_many_keys(results),
        *_arrivals(results),
        *_processes(results),
    ]


def _cpu(results: Results) -> Iterator[Verdict]:
    for shape, peer in ((ASYNC, AIO), (ASYNC_TASKS_MANY, AIO), (SYNC, BOTO)):
        yield ratio_verdict(
            results,
            f"dynamodb, {shape.label}: CPU at least 4 × below {peer}",
            results.find(peer, shape),
            results.find(OURS, shape),
            lambda ratio: ratio >= 4,
            "cpu_us",
        )


def _hot_bucket(results: Results) -> Iterator[Verdict]:
    ours, theirs = results.find(OURS, ASYNC_CROWD), results.find(AIO, ASYNC_CROWD)
    where = f"dynamodb, {ASYNC_CROWD.label}"
    yield ratio_verdict(
        results,
        f"{where}: at least 20 × the acquires/s of {AIO}",
        theirs,
        ours,
        lambda ratio: ratio >= 20,
    )
    yield _writes(results, CROWD, 0.05)
    yield ratio_verdict(
        results,
        f"{where}: p99 below that of {AIO}",
        ours,
        theirs,
        lambda ratio: ratio < 1,
        "p99_ms",
    )


def _redis(results: Results) -> Iterator[Verdict]:
    for peer in ON_REDIS:
        yield ratio_verdict(
            results,
            f"dynamodb, {ASYNC_TASKS.label}: more acquires/s than {peer}",
            results.find(peer, ASYNC_TASKS),
            results.find(OURS, ASYNC_TASKS),
            lambda ratio: ratio > 1,
        )


def _many_keys(results: Results) -> Iterator[Verdict]:
    for figure in ("p50_ms", "p99_ms"):
        yield ratio_verdict(
            results,
            f"dynamodb, {ASYNC_TASKS_MANY.label}: {figure[:3]} below that of {AIO}",
            results.find(OURS, ASYNC_TASKS_MANY),
            results.find(AIO, ASYNC_TASKS_MANY),
            lambda ratio: ratio < 1,
            figure,
        )


def _arrivals(results: Results) -> Iterator[Verdict]:
    requirement = f"dynamodb, {PER_SECOND} arrivals/s: p50 within 10 % of no grouping"
    if not results.arrivals:
        yield unknown(requirement)
    for link_ms, runs in results.arrivals.items():
        ratio = median(run.ratio for run in runs)
        where = f", link of {link_ms} ms" if link_ms else ""
        yield Verdict(f"{requirement}{where}", f"{ratio:.2f} ×", ratio <= 1.1)


def _processes(results: Results) -> Iterator[Verdict]:
    for crowd in (PROCESSES, HALF_LOAD):
        yield _writes(results, crowd, 0.1)


def _writes(results: Results, crowd: Crowd, most: float) -> Verdict:
    requirement = f"dynamodb, {crowd.name}: at most {most} writes per acquire"
    run = results.crowds.get(crowd.name)
    if run is None:
        return unknown(requirement)
    return Verdict(requirement, f"{run.writes_per_acquire:.3f}", run.writes_per_acquire <= most)
