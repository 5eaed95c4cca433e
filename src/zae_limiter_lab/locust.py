"""Load tests with Locust: users that call a limiter, and report each call as a request.

``locust -f locustfile.py --host STACK``, or any store URL as the host: ``memory://``,
``sqlite:///limits.db``, ``dynamodb://STACK?endpoint_url=…``. All users of a process share one
limiter, so that they share caches, connections and writes as the callers of a program do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    from locust import User, stats  # patches the process for gevent: before other imports
    from locust.exception import RescheduleTask
except ModuleNotFoundError as missing:
    # Imported here, since Locust patches the process before other imports.
    from zae_limiter.extras import needs

    text = needs("zae_limiter_lab.locust", "Locust", "bench")
    raise ModuleNotFoundError(text, name=missing.name) from None

from gevent.lock import BoundedSemaphore

from zae_limiter._sync.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter_lab.loadtest import LEDGER_VARIABLE

if TYPE_CHECKING:
    from locust.env import Environment

    from zae_limiter._sync.lease import SyncLease
    from zae_limiter.models.limit import Limit, LimitName
    from zae_limiter_lab.loadtest.ledger import LedgerWriter

__all__ = ["RateLimiterSession", "RateLimiterUser"]

POOL_VARIABLE = "BOTO3_MAX_POOL"  # the documented name; there is no boto3 below it
DEFAULT_POOL = 1000
# An acquire at a store under full load may take this long: an error would hide the figure.
REQUEST_TIMEOUT_S = 10.0


class RateLimited(RateLimitExceeded, RescheduleTask):
    """A rejection. A task that does not catch it ends as if it had returned."""


class StoreFailed(RateLimiterUnavailable, RescheduleTask):
    """An outage, counted as a failure. A task that does not catch it ends as if it had returned."""


class RateLimiterSession:
    """A limiter whose calls are reported as requests to Locust.

    ``acquire`` fires ``ACQUIRE`` when the block is entered and ``COMMIT`` when it has ended, or
    ``RATE_LIMITED``, which is no failure. ``available`` fires ``AVAILABLE``. Every other method of
    the limiter can be called, too, and fires its name in capitals: ``SET_SYSTEM_DEFAULTS``.
    """

    def __init__(
        self, limiter: SyncRateLimiter, request_event: Any, pool: BoundedSemaphore | None = None
    ) -> None:
        self.limiter = limiter
        self._fire = request_event.fire
        self._pool = pool or BoundedSemaphore(pool_size())
        self._ledger = _ledger()

    @contextmanager
    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int] | Mapping[LimitName, int],
        limits: list[Limit] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Iterator[SyncLease]:
        """Acquire for the block; ``name`` is that of the request, else the resource.

        ``options`` are those of ``SyncRateLimiter.acquire``. A rejection raises RateLimitExceeded,
        an outage RateLimiterUnavailable; either ends the task quietly unless it is caught.
        """
        called = name or resource
        acquire = self.limiter.acquire(entity_id, resource, consume, limits, **options)
        entry = None if self._ledger is None else self._ledger.entry(entity_id, resource, consume)
        started = time.perf_counter()
        try:
            with self._pool:
                lease = acquire.__enter__()
        except RateLimitExceeded as rejection:
            self._report("RATE_LIMITED", called, started)
            raise _quiet(RateLimited, rejection) from None
        except RateLimiterUnavailable as error:
            self._report("ACQUIRE", called, started, error)
            raise _quiet(StoreFailed, error) from error
        try:
            self._report("ACQUIRE", called, started)
            if entry is not None:
                entry.granted()
            yield lease
        except BaseException as error:
            acquire.__exit__(type(error), error, error.__traceback__)
            if entry is not None:
                entry.failed(lease.consumed if options.get("on_error") == "keep" else {})
            raise
        consumed = lease.consumed
        if entry is not None:
            entry.begin()
        started = time.perf_counter()
        with self._pool:
            acquire.__exit__(None, None, None)
        self._report("COMMIT", called, started)
        if entry is not None:
            entry.ended(consumed)

    def available(
        self, entity_id: str, resource: str, *, name: str | None = None, **options: Any
    ) -> dict[str, int]:
        """Return the tokens that an acquire could take now."""
        levels: dict[str, int] = self._called(
            "AVAILABLE", name or resource, self.limiter.available, entity_id, resource, **options
        )
        return levels

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a method of the limiter, reported under its name in capitals."""
        call = getattr(self.limiter, method)
        if method.startswith("_") or not callable(call):
            raise AttributeError(method)

        def reported(*args: Any, name: str | None = None, **options: Any) -> Any:
            return self._called(method.upper(), name or method, call, *args, **options)

        return reported

    def _called(
        self, kind: str, name: str, call: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        started = time.perf_counter()
        try:
            with self._pool:
                answer = call(*args, **options)
        except Exception as error:
            self._report(kind, name, started, error)
            raise
        self._report(kind, name, started)
        return answer

    def _report(
        self, kind: str, name: str, started: float, exception: Exception | None = None
    ) -> None:
        self._fire(
            request_type=kind,
            name=name,
            response_time=(time.perf_counter() - started) * 1000,
            response_length=0,
            exception=exception,
            context={},
        )


class RateLimiterUser(User):
    """A Locust user whose ``client`` is a limiter that all users of the process share.

    The store is the ``--host`` of the run, a stack's name or a store URL, else ``url``, else
    ``stack_name``, else the store that the environment names (ZAEL_URL, ZAEL_STACK). No stack or
    table is created: a mistyped name is an error. ``pool_size`` bounds the calls of a process that
    are under way at once; BOTO3_MAX_POOL sets it, too.
    """

    abstract = True
    stack_name: str | None = None
    url: str | None = None
    namespace: str | None = None
    pool_size: int | None = None

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.client = self.open_client(environment)

    @classmethod
    def open_client(cls, environment: Environment) -> RateLimiterSession:
        """Return a session on the shared limiter; also for listeners that set a test up."""
        host = environment.host or cls.host
        url, stack = cls.url, cls.stack_name
        if host:
            url, stack = (host, None) if "://" in host else (None, host)
        elif url:
            stack = None
        limiter = _shared_limiter(url, stack, cls.namespace, environment)
        return RateLimiterSession(limiter, environment.events.request, _shared_pool(cls.pool_size))


def pool_size() -> int:
    """Return the number of calls of a process that may be under way at once."""
    text = os.environ.get(POOL_VARIABLE, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise ValidationError(POOL_VARIABLE, text, "must be a whole number above 0")
    return int(text) if text else DEFAULT_POOL


def open_limiters() -> list[SyncRateLimiter]:
    """Return the limiters that users of this process share."""
    return list(_limiters.values())


def close_limiters(**_: Any) -> None:
    """Close the shared limiters and the ledger, with the writes that they still have to make."""
    while _limiters:
        _limiters.popitem()[1].close()
    while _ledgers:
        _ledgers.pop().close()


_limiters: dict[tuple[str | None, str | None, str | None], SyncRateLimiter] = {}
_pools: dict[int, BoundedSemaphore] = {}
_ledgers: list[LedgerWriter] = []
_opening = BoundedSemaphore(1)


def _shared_limiter(
    url: str | None, stack: str | None, namespace: str | None, environment: Environment
) -> SyncRateLimiter:
    key = (url, stack, namespace)
    with _opening:  # opening waits for the store, and other users start meanwhile
        if key not in _limiters:
            repository = SyncRepository.open(
                namespace,
                url=url,
                stack=stack,
                provision="never",
                request_timeout=REQUEST_TIMEOUT_S,
            )
            if not _limiters:
                environment.events.quitting.add_listener(close_limiters)
            _limiters[key] = SyncRateLimiter(repository)
        return _limiters[key]


def _shared_pool(size: int | None) -> BoundedSemaphore:
    size = size or pool_size()
    return _pools.setdefault(size, BoundedSemaphore(size))


def _ledger() -> LedgerWriter | None:
    folder = os.environ.get(LEDGER_VARIABLE)
    if folder and not _ledgers:
        from zae_limiter_lab.loadtest.ledger import LedgerWriter

        _ledgers.append(LedgerWriter(folder))
    return _ledgers[0] if folder else None


def _quiet(kind: type[Any], error: Exception) -> Exception:
    """Return the error as a kind that Locust does not log, with the same message and data."""
    quiet: Exception = kind.__new__(kind)  # type: ignore[call-overload]
    quiet.args = error.args
    quiet.__dict__.update(error.__dict__)
    return quiet


def two_digits(milliseconds: float) -> float:
    """Round a response time to two significant digits, also below a millisecond."""
    return float(f"{milliseconds:.2g}")


# Locust rounds to whole milliseconds, but most acquires of a near store are faster. Locust offers
# this function for replacement.
stats.bucket_response_time = two_digits  # type: ignore[assignment]
