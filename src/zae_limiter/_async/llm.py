"""A reservation for one LLM call, which charges an estimate and settles the real usage."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from zae_limiter._async.acquire import Acquire
from zae_limiter._async.lease import Lease
from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.llm_budget import found_budget
from zae_limiter._async.llm_feedback import ProviderPause, paused_entity
from zae_limiter.exceptions import LeaseExpiredError, RateLimiterUnavailable, ValidationError
from zae_limiter.forgotten import Unentered, caller_of_library, disarmed, warn_forgotten
from zae_limiter.llm.estimates import (
    Estimate,
    Estimator,
    MaxTokens,
    count_tokens,
    output_cap,
    resolve,
)
from zae_limiter.llm.feedback import RequestCount, count_into
from zae_limiter.llm.inputs import CountTokens
from zae_limiter.llm.priced_calls import check_budget, check_budget_resource, price_of
from zae_limiter.llm.records import CallRecord, StreamRecord
from zae_limiter.llm.usage import DEFAULT_METER, Meter, Usage
from zae_limiter.runtime.background import ALastCalls, aclose_quietly
from zae_limiter.runtime.calls import acaller_id
from zae_limiter.runtime.finishing import ashield

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from zae_limiter.llm.prices import ModelPrice, Prices
    from zae_limiter.models.limit import Amount

    # With the default, the bare name is a stream of any chunks. No program needs it at run time.
    Chunk = TypeVar("Chunk", default=Any)
else:
    from typing import TypeVar

    Chunk = TypeVar("Chunk")

Observer = Callable[[str, Usage], None]


_FORGOTTEN = "{} was never entered, so it reserved nothing: write `async with llm.reserve(...):`"


class LlmReservation:
    """The context manager that ``llm.reserve`` returns. It can be used once.

    It charges the estimate on entering, and settles on leaving, however the block ends. If a stream
    is not read to its end inside of the block, the stream makes the settlement later. So a handler
    may return the stream, or a generator that reads it, from inside of the block. Such a stream
    also holds the slots of the call; without one, the slots return when the block ends.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        entity_id: str,
        resource: str,
        request: Any = None,
        *,
        estimate: Estimate | int | Estimator | None = None,
        meter: Meter | None = None,
        count: CountTokens | None = None,
        charge_refused: bool = True,
        pause: bool | str = True,
        prices: Prices | ModelPrice | None = None,
        budget: str | None = None,
        budget_resource: str | None = None,
        **options: Any,
    ) -> None:
        estimator = MaxTokens(count=count or count_tokens) if estimate is None else estimate
        self._call_record = CallRecord(
            resolve(estimator, resource, request),
            DEFAULT_METER if meter is None else meter,
            count=count,
            charge_refused=charge_refused,
            most_output=output_cap(request),
            price=None if prices is None else price_of(prices, request, resource),
        )
        self._budget = check_budget(budget, self._call_record)
        self._call_record.budget_resource = check_budget_resource(
            budget_resource, resource, self._call_record
        )
        self._observe: Observer | None = getattr(estimator, "observe", None)
        self._resource = resource
        self._pause = ProviderPause(limiter, paused_entity(pause, entity_id), resource)
        amounts = self._call_record.tokens(self._call_record.estimate.usage)
        # "keep": if the call ends before it is settled, the estimate stays charged.
        self._options = {"on_error": "keep", **options}
        self._limiter, self._entity_id = limiter, entity_id
        self._acquire = self._begin(amounts)  # it checks the arguments at once
        self._settler: _Settler | None = None
        self._call: weakref.ref[LlmCall] | None = None
        self._outer: RequestCount | None = None
        noticed, caller = Unentered(self, warn_forgotten), caller_of_library()
        noticed.text, noticed.about = _FORGOTTEN, (repr(self),)
        noticed.code, noticed.instruction = caller.f_code, caller.f_lasti
        self._unentered: Unentered | None = noticed  # None once it was entered

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._entity_id!r} on {self._resource!r})"

    def __aenter__(self) -> Coroutine[Any, Any, LlmCall]:
        self._unentered = None  # at once, since the coroutine may be cancelled before it begins
        return self._enter()

    async def _enter(self) -> LlmCall:
        record = self._call_record
        if record.price is not None:
            record.budget = await found_budget(
                self._acquire, record.price, self._budget, record.budget_resource
            )
            self._acquire = self._priced_acquire(record)
        lease = await self._acquire.__aenter__()
        self._settler = _Settler(
            self._acquire, lease, self._call_record, self._resource, self._observe, self._pause
        )
        call = LlmCall(self._settler)
        self._call = weakref.ref(call)
        self._outer = count_into(self._call_record.sent)
        return call

    def _priced_acquire(self, record: CallRecord) -> Acquire:
        """Return the acquire of the tokens and of the money that the estimate costs."""
        usage = record.estimated_usage()
        where = record.budget_resource
        if where is None:
            return self._begin(record.amounts(usage))
        also = dict(self._options.get("also") or {})
        also[where] = {**also.get(where, {}), **record.money(usage)}
        return self._begin(record.tokens(usage), also=also)

    def _begin(self, amounts: Mapping[str, Amount], **more: Any) -> Acquire:
        options = {**self._options, **more}
        acquire = self._limiter.acquire(self._entity_id, self._resource, amounts, **options)
        return disarmed(acquire)  # the reservation itself warns

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._settler is not None, "__aenter__ runs before __aexit__"
        assert self._call is not None
        count_into(self._outer)
        call = self._call()
        if exc is None and self._call_record.is_silent and call is not None:
            # A generator that will read a stream may hold the call.
            await self._settler.settle_when_dropped(call)
        else:
            await self._settler.leave(exc)


class _Settler:
    """Settles one call once, when the last of its block, streams and finalizers has ended."""

    def __init__(
        self,
        acquire: Acquire,
        lease: Lease,
        record: CallRecord,
        resource: str,
        observe: Observer | None,
        pause: ProviderPause,
    ) -> None:
        self.lease = lease
        self.record = record
        self.is_settled = False
        self._acquire = acquire
        self._resource = resource
        self._observe = observe
        self._pause = pause
        self._background = ALastCalls()
        self._left = False
        self._has_paused = False
        # Only the class is kept: the error itself would keep the frames alive that hold the stream.
        self._failed_with: type[BaseException] | None = None
        self._unclaimed = [True]  # list.pop() is atomic, so one caller wins

    async def leave(self, error: BaseException | None) -> None:
        """End the call with its block, unless an open stream ends it later."""
        self._left = True
        if error is not None:
            self._failed_with = type(error)
            self.record.fail(error)
        if not self.record.has_open_stream:
            await self._end()
        elif error is not None:
            is_read = self.record.is_read_beside(acaller_id())
            await ashield(lambda: self._settle_so_far(holds_slots=is_read))

    async def stream_ended(self, stream: StreamRecord) -> None:
        """End the call with its last stream, unless the block goes on."""
        stream.is_open = False
        if self._left and not self.record.has_open_stream:
            await self._end()

    async def stream_aborted(self, stream: StreamRecord, source: Any) -> None:
        """Settle the delivered part of a stream, and close the stream of the provider."""
        try:
            await self.stream_ended(stream)
        finally:
            await aclose_quietly(source)

    def stream_dropped(self, stream: StreamRecord, source: Any) -> None:
        """End a stream that nobody can read any more. The garbage collector calls this."""
        stream.is_open = False  # at once, so that a block that ends first settles the call
        self.run_later(lambda: self.stream_aborted(stream, source))

    async def settle_when_dropped(self, call: LlmCall) -> None:
        """Leave the block without ending the call, which ends with its streams or when dropped.

        Its slots return at once, since nothing shows that the call is still in flight.
        """
        self._left = True
        dropped = weakref.finalize(call, self.run_later, lambda: self.leave(None))
        dropped.atexit = False  # then it is too late to write, and the estimate stays charged
        await ashield(self.lease._return_slots)  # noqa: SLF001 - for us alone

    def run_later(self, call: Callable[[], Any]) -> None:
        """Settle for a dropped owner. The garbage collector calls this, in any thread."""
        if not self._background.run(call):
            # Not before it is needed: `import zae_limiter` does without logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).warning(
                "a call on %r was dropped too late to be settled; its estimate stays charged",
                self._resource,
            )

    async def _end(self) -> None:
        """Settle, once; a cancellation is raised when the settlement is done."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return
        await ashield(self._settle)

    async def _settle_so_far(self, *, holds_slots: bool) -> None:
        """Settle a failed block. If an open stream is still read, it adds to the cost later."""
        if not holds_slots:
            await self.lease._return_slots()  # noqa: SLF001 - for us alone
        try:
            await self._settle_costs(self.record.usage(), now=True)
        except (RateLimiterUnavailable, LeaseExpiredError):
            return  # the end of the stream writes the cost, or has just done so
        await self._pause_once()

    async def _settle_costs(self, usage: Usage, *, now: bool = False) -> None:
        """Note the true cost, in money on the resource that has the budget."""
        record, where = self.record, self.record.budget_resource
        if where is None:
            await self.lease.settle(record.amounts(usage), now=now)
            return
        await self.lease.settle(record.tokens(usage), now=now)
        await self.lease.resource(where).settle(record.money(usage), now=now)

    async def _settle(self) -> None:
        usage = self.record.usage()
        try:
            await self._settle_costs(usage)
        finally:
            await self._acquire.__aexit__(self._failed_with, None, None)
        self.is_settled = True
        if self._observe is not None and self._failed_with is None and self.record.is_exact:
            self._observe(self._resource, usage)
        await self._pause_once()

    async def _pause_once(self) -> None:
        """Pause the bucket as long as the provider asks, once: a stream may end much later."""
        if not self._has_paused:
            self._has_paused = True
            await self._pause.pause(self.record.provider_wait)


class LlmCall:
    """One LLM call under a reservation. Pass it the response, or read the stream through it."""

    def __init__(self, settler: _Settler) -> None:
        self._settler = settler
        self._call_record = settler.record

    def record(self, response: Any) -> Usage | None:
        """Note a response, and return the usage that it reports; None if it reports none.

        If the block makes several calls, note every response. Read streams through ``stream``
        instead. If a response reports no usage, the text of the answer is counted. Also note an
        error of the SDK that the block handles itself; it counts as a failed call.
        """
        return self._call_record.record(response)

    def record_usage(self, usage: Usage) -> None:
        """Note a usage that the caller knows in another way."""
        self._call_record.record_usage(usage)

    @overload
    def stream(self, source: Mapping[str, Any]) -> LlmStream[Any]: ...
    @overload
    def stream(self, source: AsyncIterable[Chunk]) -> LlmStream[Chunk]: ...
    @overload
    def stream(self, source: Any) -> LlmStream[Any]: ...
    def stream(self, source: Any) -> LlmStream[Any]:
        """Return an iterator over the stream that settles the call when it ends or is dropped.

        ``source`` is the stream that the SDK returns: its events, or the bytes of server-sent
        events; for Bedrock it is the whole response. Call this inside of the block, so that the
        stream holds the slots of the call until it is read.
        """
        events = source["stream"] if isinstance(source, Mapping) and "stream" in source else source
        try:
            iterator = aiter(events)
        except TypeError as error:
            raise ValidationError(
                "source",
                type(events).__name__,
                "is not a stream of events or bytes; for a raw or streaming response of an SDK "
                "pass response.iter_bytes(), and note a whole answer by call.record(response)",
            ) from error
        return LlmStream(self, self._call_record.record_stream(source), events, iterator)

    def refund(self) -> None:
        """Give the whole reservation back at the end, because the request was never sent.

        This has no effect if a usage was noted, a request counted or a stream opened.
        """
        self._call_record.is_refunded = True

    @property
    def lease(self) -> Lease:
        """Return the lease that the reservation holds."""
        return self._settler.lease

    @property
    def estimate(self) -> Estimate:
        """Return the estimate that was reserved."""
        return self._call_record.estimate

    @property
    def usage(self) -> Usage:
        """Return the usage of the call as far as it is known; at its end, the charged usage."""
        return self._call_record.usage()

    @property
    def is_settled(self) -> bool:
        """Whether the call has ended and its cost was settled."""
        return self._settler.is_settled

    @property
    def provider_wait(self) -> float | None:
        """Return the seconds to wait that the provider asked for when it refused the call."""
        return self._call_record.provider_wait


class LlmStream(Generic[Chunk]):
    """An iterator over the unchanged events of a stream, which settles its call.

    It settles at the end, at an error, when it is closed, when its reader is cancelled, and when it
    is dropped. Other attributes are those of the stream itself.
    """

    def __init__(
        self, call: LlmCall, record: StreamRecord, source: Any, events: AsyncIterator[Chunk]
    ) -> None:
        self._call = call  # keeps the call alive, which ends with its last stream
        self._settler = settler = call._settler  # noqa: SLF001 - part of this module
        self._stream_record = record
        self._source = source
        self._events = events
        # Frameworks drop streams without closing them, often as a part of a reference cycle.
        self._dropped = weakref.finalize(self, settler.stream_dropped, record, source)
        self._dropped.atexit = False  # then it is too late to write, and the estimate stays charged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        self._stream_record.reader_id = acaller_id()
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            await self._finish()
            raise
        except BaseException:
            await self.aclose()
            raise
        self._stream_record.meter.see(event)
        return event

    async def aclose(self) -> None:
        """Close the stream of the provider and settle the delivered part."""
        if self._dropped.detach():
            await ashield(lambda: self._settler.stream_aborted(self._stream_record, self._source))

    close = aclose  # unasync: remove

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)

    async def _finish(self) -> None:
        if self._dropped.detach():
            await self._settler.stream_ended(self._stream_record)
