"""Process a batch of stream records: store and clear finished hours, archive expired events.

Every write may be repeated, late or out of order: the stored usage stays the same. A record fails
if a later attempt may succeed. A record that can never be processed is skipped, so that it does not
block the records behind it. Neither case loses usage: a finished hour stays in its bucket item
until the hour is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from zae_limiter.dynamodb.foreign import decode_version_record
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.stored import keys
from zae_limiter.items.version_record import refuse_newer_schema, usage_days_of
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.store_errors import ConditionFailed
from zae_limiter.transport.errors import Refused
from zae_limiter_aggregator import stream
from zae_limiter_aggregator.archive import ArchiveObject, archive_objects
from zae_limiter_aggregator.hours import FinishedHours, finished_hours
from zae_limiter_aggregator.report import Log

WORKERS = 16  # threads that wait for answers; each has a connection of its own
CHUNK = 16  # the fewest hours for which another thread is worth its start
RETENTION_CHECK_S = 300.0  # how often a warm function reads the retention again
RESERVE_S = 11.0  # before the function's timeout: a store and a clear may take 5 s each
LATEST_S = 10**12  # a later time of a record is damaged, and might overflow
MAX_LOGGED = 20  # failures of one batch that are logged one by one

T = TypeVar("T")
R = TypeVar("R")


class Calls(Protocol):
    """The services that a processor calls: DynamoDB on one table, and S3."""

    @property
    def table(self) -> str: ...

    def call(self, operation: str, body: Mapping[str, Any] | str) -> dict[str, Any]:
        """Call an operation of DynamoDB; the name of the table is added to a mapping."""

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        """Put an object into a bucket."""


@dataclass(slots=True)
class ProcessResult:
    """The outcome of a batch.

    ``failed`` holds the sequence numbers of the records that Lambda must deliver again. ``errors``
    holds a line for each failed or skipped record. ``lag_ms`` is the age of the oldest record.
    """

    processed_count: int = 0
    lag_ms: int = 0
    snapshots_updated: int = 0
    events_archived: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def response(self) -> dict[str, list[dict[str, str]]]:
        """Return the response for Lambda, which delivers again from the first failed record on."""
        return {"batchItemFailures": [{"itemIdentifier": number} for number in self.failed]}


class Processor:
    """Processes batches. Connections, threads and the retention are kept between batches."""

    def __init__(self, calls: Calls, archive_bucket: str | None = None) -> None:
        self._calls = calls
        self._archive_bucket = archive_bucket
        self._retention_days = 0
        self._retention_until = 0.0
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads; the next large batch starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def process(self, records: Sequence[Any], log: Log, deadline: float) -> ProcessResult:
        """Process the records of one batch; ``deadline`` is a time of the monotonic clock."""
        result = ProcessResult(processed_count=len(records), lag_ms=_lag_ms(records))
        finished, expired = self._parse(records, result, log)
        if finished:
            self._store_hours(finished, result, log, deadline)
        if expired and self._archive_bucket:
            for stored in archive_objects(expired):
                self._archive(stored, self._archive_bucket, result, log, deadline=deadline)
        # Lambda compares sequence numbers by value, not as text.
        result.failed = sorted(set(result.failed), key=lambda number: (len(number), number))
        return result

    def _parse(
        self, records: Sequence[Any], result: ProcessResult, log: Log
    ) -> tuple[list[FinishedHours], list[stream.ExpiredEvent]]:
        turned, expired = list[stream.ParsedBucketRecord](), list[stream.ExpiredEvent]()
        for record in records:
            try:
                parsed = stream.parse(record)
            except stream.MalformedRecord as error:
                _skip(result, log, stream.sequence_number(record) or "", error)
                continue
            if isinstance(parsed, stream.ParsedBucketRecord):
                turned.append(parsed)
            elif parsed is not None:
                expired.append(parsed)
        return finished_hours(turned), expired

    # --- hours

    def _store_hours(
        self, finished: list[FinishedHours], result: ProcessResult, log: Log, deadline: float
    ) -> None:
        try:
            retention_days = self._retention()
        except ZAELimiterError as error:
            for hours in finished:
                _fail(result, log, hours.sequence_numbers, error)
            return
        if not retention_days:  # usage is turned off
            return

        def store(some: Sequence[FinishedHours]) -> list[Exception | None]:
            return [self._store(hours, retention_days, deadline) for hours in some]

        for hours, failure in zip(finished, self._in_threads(store, finished), strict=True):
            if failure is None:
                result.snapshots_updated += len(hours.by_hour)
            elif _is_final(failure):
                _skip(result, log, hours.sequence_numbers[0], failure)
            else:
                _fail(result, log, hours.sequence_numbers, failure)

    def _in_threads(self, work: Callable[[Sequence[T]], list[R]], tasks: Sequence[T]) -> list[R]:
        """Do the work on all tasks and return the results in order; threads share many tasks."""
        workers = min(WORKERS, -(-len(tasks) // CHUNK))
        if workers == 1:
            return work(tasks)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="zael-aggregator")
        size = -(-len(tasks) // workers)
        parts = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        return [outcome for part in self._pool.map(work, parts) for outcome in part]

    def _store(
        self, hours: FinishedHours, retention_days: int, deadline: float
    ) -> Exception | None:
        """Store hours, then clear the latest in its bucket item; return the error of a failure."""
        try:
            _check_time(deadline)
            self._calls.call("UpdateItem", hours.store(self._calls.table, retention_days))
        except Exception as error:  # noqa: BLE001 - one bucket must not fail the others
            return error
        if not hours.is_latest:
            return None
        try:
            self._calls.call("UpdateItem", hours.clear(self._calls.table))
        except ConditionFailed:  # the hour was cleared or turned over before, or the bucket is gone
            pass
        except Exception as error:  # noqa: BLE001 - as above; a later delivery clears the hour
            return error
        return None

    def _retention(self) -> int:
        """Return the number of days that usage is kept, from the version record of the table.

        Clients and aggregator must agree on this number. Raises for a record that this version
        cannot read, so that nothing is written to such a table.
        """
        now = time.monotonic()
        if now >= self._retention_until:
            key = keys.record(RESERVED_NAMESPACE, VERSION_RECORD).attributes
            item = self._calls.call("GetItem", {"Key": key, "ConsistentRead": True}).get("Item")
            record = {} if item is None else decode_version_record(item, self._calls.table)
            refuse_newer_schema(record, self._calls.table)
            self._retention_days = usage_days_of(record)
            self._retention_until = now + RETENTION_CHECK_S
        return self._retention_days

    # --- audit events

    def _archive(
        self,
        stored: ArchiveObject,
        bucket: str,
        result: ProcessResult,
        log: Log,
        *,
        deadline: float,
    ) -> None:
        try:
            _check_time(deadline)
            self._calls.put_object(bucket, stored.name, stored.body)
        except Exception as error:  # noqa: BLE001 - the table has deleted the events: try again
            _fail(result, log, stored.sequence_numbers, error)
        else:
            result.events_archived += len(stored.sequence_numbers)


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(
            "the function's time is nearly over: the rest of the batch is delivered again; if this "
            "happens often, deploy with a longer --lambda-timeout"
        )


def _is_final(error: Exception) -> bool:
    """Return whether another attempt would fail again: a refused request, or a defect of ours."""
    return isinstance(error, Refused) or not isinstance(error, ZAELimiterError | TimeoutError)


def _fail(result: ProcessResult, log: Log, numbers: Iterable[str], error: Exception) -> None:
    result.failed += numbers
    _note(result, log, "a record failed and is delivered again", error)


def _skip(result: ProcessResult, log: Log, number: str, error: Exception) -> None:
    result.skipped += 1
    _note(
        result,
        log,
        "a record was skipped: it can never be processed",
        error,
        sequence_number=number,
    )


def _note(
    result: ProcessResult, log: Log, message: str, error: Exception, **fields: object
) -> None:
    result.errors.append(f"{message}: {error}")
    if len(result.errors) <= MAX_LOGGED:
        log.error(message, error=str(error), error_type=type(error).__name__, **fields)


def _lag_ms(records: Iterable[Any]) -> int:
    """Return the age of the oldest record in milliseconds; 0 if no record has a possible time."""
    created = [
        seconds
        for record in records
        if isinstance(record, dict)
        and isinstance(change := record.get("dynamodb"), dict)
        and isinstance(seconds := change.get("ApproximateCreationDateTime"), int | float)
        and 0 <= seconds < LATEST_S
    ]
    return max(0, int((time.time() - min(created)) * 1000)) if created else 0
