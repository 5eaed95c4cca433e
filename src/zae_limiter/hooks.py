"""Hooks: a limiter calls them when something happens to a call.

>>> class Metrics(Hooks):
...     def on_reject(self, event):
...         rejected.labels(resource=event.resource).inc()
>>> limiter = RateLimiter(repository, hooks=Metrics())

The task or thread that made the call calls the hook. A hook is a plain function, even for an async
limiter, so it should return at once. Its errors never reach the caller; the first one is logged.
``on_lost``, ``on_threshold``, ``on_exhausted`` and ``on_settle`` may be called in the background:
there even ``sys.exit`` is only logged. A limiter without hooks spends no time on them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.models.status import LimitStatus
from zae_limiter.refusal import LimitedBy, limited_by

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from zae_limiter.admission.thresholds import Crossing, Exhaustion
    from zae_limiter.models.limit import Limit

NAMES = (
    "on_acquire",
    "on_reject",
    "on_settle",
    "on_outage",
    "on_shadow",
    "on_lost",
    "on_threshold",
    "on_exhausted",
)
ALL_PERCENT = 100  # from here on a threshold is logged as a warning
# The amounts of further resources of an acquire, by entity and resource.
FurtherAmounts = Mapping[tuple[str, str], Mapping[str, "int | Decimal"]]
COROUTINE_FLAG = 0x80  # inspect.CO_COROUTINE; the module inspect is slow to import


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireEvent:
    """An acquire was granted.

    ``statuses`` show the remaining tokens; ``cascade`` says that a parent was charged as well.
    ``also`` are the amounts of further resources, by entity and resource.
    """

    entity_id: str
    resource: str
    consume: Mapping[str, int | Decimal]
    statuses: tuple[LimitStatus, ...]
    duration_s: float  # of the whole acquire, including the time of waiting
    waited_s: float = 0.0  # the part in which it waited for tokens
    cascade: bool = False
    also: FurtherAmounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectEvent:
    """An acquire was rejected, or a ``consume`` within a lease (``is_acquire`` is False).

    ``also`` are the amounts of further resources, by entity and resource.
    """

    entity_id: str
    resource: str
    consume: Mapping[str, int | Decimal]
    statuses: tuple[LimitStatus, ...]
    retry_after_seconds: float
    duration_s: float
    waited_s: float = 0.0
    is_acquire: bool = True
    also: FurtherAmounts = field(default_factory=dict)

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that held too few tokens."""
        return tuple(status for status in self.statuses if status.exceeded)

    @property
    def limited_by(self) -> LimitedBy | None:
        """What refused the call, as ``RateLimitExceeded.limited_by``."""
        return limited_by(self.violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowEvent(RejectEvent):
    """In shadow mode, a call was let through that would have been rejected.

    The mode of the call or limiter lets it through uncharged. The mode of a bucket charges it
    (``charged``): then ``on_acquire`` is called as well, and ``retry_after_seconds`` is the time
    after which the debt is repaid.
    """

    charged: bool = False

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that held too few tokens."""
        if not self.charged:
            return tuple(status for status in self.statuses if status.exceeded)
        return tuple([each for each in self.statuses if each.mode == "shadow" and each.overdrawn])


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleEvent:
    """A block has ended. ``cost`` is its cost, ``written`` are the debts and credits of its end.

    ``failed`` says that the block raised, ``lost`` that its debts and credits were given up, at
    least in part. If the store does not take them at once, the event comes when they are stored or
    given up, in the background. An acquire over several resources has one event for each of them.
    """

    entity_id: str
    resource: str
    cost: Mapping[str, int | Decimal]
    written: Mapping[str, int | Decimal]
    failed: bool
    lost: bool
    duration_s: float  # of the block


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEvent:
    """A lease has lost its slots: they were not renewed in time, so another call may take them.

    The call that holds the lease should stop; it can also check ``lease.lost``. The task or thread
    that renews leases calls this hook.
    """

    entity_id: str
    resource: str
    duration_s: float  # since the acquire


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageEvent:
    """The store did not answer an acquire or ``consume``; ``admitted`` says it was let through."""

    entity_id: str
    resource: str
    error: RateLimiterUnavailable
    admitted: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdEvent:
    """A threshold of a quota or budget was reached; each is raised once per window.

    Of all clients only one raises it: the one that has marked it in the store. ``used`` includes
    the amounts that calls in flight hold; amounts of budgets are Decimal. A reset, a top-up or
    other limits let thresholds be raised again. On DynamoDB a task or thread in the background
    calls this hook, a moment after the call that has reached the threshold.
    """

    entity_id: str
    resource: str
    limit_name: str
    percent: int
    used: int | Decimal
    amount: int | Decimal
    window_start: datetime | None
    window_end: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedEvent:
    """A hard quota or budget has rejected an acquire, for the first time in its window.

    Calls reserve estimates, so this comes before all is used: ``requested`` did not fit into the
    ``available`` amount, and ``used`` includes what calls in flight hold. An amount above that of
    the whole quota exhausts nothing. Of all clients only one raises the event: the one that has
    marked it in the store. A reset, a top-up or another amount lets it be raised again. On DynamoDB
    a task or thread in the background calls this hook, a moment after the rejection.
    """

    entity_id: str
    resource: str
    limit_name: str
    requested: int | Decimal
    available: int | Decimal
    used: int | Decimal
    amount: int | Decimal
    window_start: datetime | None
    window_end: datetime | None


class Hooks:
    """Base of hooks: override the methods you need. Any object with one of them is a hook."""

    def on_acquire(self, event: AcquireEvent) -> None:
        """An acquire was granted."""

    def on_reject(self, event: RejectEvent) -> None:
        """A call was rejected."""

    def on_settle(self, event: SettleEvent) -> None:
        """A block has ended, and its settlement was written or given up."""

    def on_outage(self, event: OutageEvent) -> None:
        """The store did not answer."""

    def on_shadow(self, event: ShadowEvent) -> None:
        """A call was let through that would have been rejected."""

    def on_lost(self, event: LostEvent) -> None:
        """A lease has lost its slots."""

    def on_threshold(self, event: ThresholdEvent) -> None:
        """A threshold of a quota or budget was reached."""

    def on_exhausted(self, event: ExhaustedEvent) -> None:
        """A quota or budget has rejected an acquire, for the first time in its window."""


class Observer:
    """The mode of a limiter and its hooks. An enforcing limiter without hooks has no observer."""

    __slots__ = ("_failed", "_hooks", "is_shadow")

    def __init__(self, hooks: object = None, *, is_shadow: bool = False) -> None:
        self.is_shadow = is_shadow
        if hooks is None:
            self._hooks: tuple[object, ...] = ()
        else:
            self._hooks = tuple(hooks) if isinstance(hooks, list | tuple) else (hooks,)
        _check_hooks(self._hooks)
        self._failed: set[tuple[int, str]] = set()  # hooks and methods whose error was logged

    @property
    def has_hooks(self) -> bool:
        return bool(self._hooks)

    def in_mode(self, mode: object) -> Observer:
        """Return an observer with the same hooks and another mode."""
        return Observer(self._hooks, is_shadow=check_mode(mode) == "shadow")

    def watch(self, entity_id: str, resource: str) -> AcquireWatch:
        """Begin to watch one acquire."""
        return AcquireWatch(self, entity_id, resource)

    def notify(self, name: str, event: object, *, in_background: bool = False) -> None:
        """Call one method of every hook. In the background no hook can end the program."""
        for position, hook in enumerate(self._hooks):
            method = getattr(hook, name, None)
            if method is None:
                continue
            try:
                method(event)
            except Exception as error:  # noqa: BLE001 - an observer must not break what it observes
                self._log_once(position, name, hook, error)
            except BaseException as error:
                # No caller is there to end, and other calls rely on the task or thread.
                if not in_background or _may_be_ctrl_c(error):
                    raise
                self._log_once(position, name, hook, error)

    def _log_once(self, position: int, name: str, hook: object, error: BaseException) -> None:
        if (position, name) not in self._failed:
            self._failed.add((position, name))
            # Imported here, so that `import zae_limiter` does not import logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).error(
                "the hook %s.%s raised; its later errors are not logged",
                type(hook).__name__,
                name,
                exc_info=error,
            )


class AcquireWatch:
    """Watches one acquire and its lease: it measures times and makes the events.

    ``would_reject`` are the statuses of the last rejection that shadow mode let through;
    ``waited_s`` is the time for which the acquire waited for its tokens, and ``also`` are the
    amounts of its further resources.
    """

    __slots__ = (
        "_began_s",
        "_entered_s",
        "_entity_id",
        "_observer",
        "_resource",
        "also",
        "waited_s",
        "would_reject",
    )

    def __init__(self, observer: Observer, entity_id: str, resource: str) -> None:
        self._observer = observer
        self._entity_id = entity_id
        self._resource = resource
        self._began_s = self._entered_s = monotonic()
        self.would_reject: tuple[LimitStatus, ...] | None = None
        self.waited_s = 0.0
        self.also: FurtherAmounts = {}

    @property
    def is_shadow(self) -> bool:
        return self._observer.is_shadow

    def acquired(
        self,
        consume: Mapping[str, int | Decimal],
        statuses: tuple[LimitStatus, ...],
        *,
        cascade: bool,
    ) -> None:
        self._entered_s = monotonic()
        event = AcquireEvent(
            consume=dict(consume),
            statuses=statuses,
            duration_s=self._entered_s - self._began_s,
            waited_s=self.waited_s,
            cascade=cascade,
            also=self.also,
            entity_id=self._entity_id,
            resource=self._resource,
        )
        self._observer.notify("on_acquire", event)

    def rejected(
        self,
        consume: Mapping[str, int | Decimal],
        error: RateLimitExceeded,
        began_s: float | None = None,
    ) -> bool:
        """Report a rejection of the acquire, or of a consume that began at ``began_s``.

        Return whether shadow mode lets the call through.
        """
        is_shadow, statuses = self.is_shadow, tuple(error.statuses)
        event = (ShadowEvent if is_shadow else RejectEvent)(
            consume=dict(consume),
            statuses=statuses,
            retry_after_seconds=error.retry_after_seconds,
            duration_s=self._since(began_s),
            waited_s=self.waited_s if began_s is None else 0.0,
            is_acquire=began_s is None,
            also=self.also if began_s is None else {},
            entity_id=self._entity_id,
            resource=self._resource,
        )
        if is_shadow:
            self.would_reject = statuses
        self._observer.notify("on_shadow" if is_shadow else "on_reject", event)
        return is_shadow

    def overdrawn(
        self,
        consume: Mapping[str, int | Decimal],
        statuses: tuple[LimitStatus, ...],
        began_s: float | None = None,
    ) -> None:
        """Report a call that was charged in the shadow mode of a bucket, and did not fit."""
        waits = [each.retry_after_seconds for each in statuses if each.overdrawn]
        event = ShadowEvent(
            consume=dict(consume),
            statuses=statuses,
            retry_after_seconds=max(waits, default=0.0),
            duration_s=self._since(began_s),
            waited_s=self.waited_s if began_s is None else 0.0,
            is_acquire=began_s is None,
            also=self.also if began_s is None else {},
            entity_id=self._entity_id,
            resource=self._resource,
            charged=True,
        )
        self._observer.notify("on_shadow", event)

    def failed(
        self, error: RateLimiterUnavailable, *, admitted: bool, began_s: float | None = None
    ) -> bool:
        """Report an outage; return ``admitted``."""
        event = OutageEvent(
            entity_id=self._entity_id,
            resource=self._resource,
            error=error,
            admitted=admitted,
            duration_s=self._since(began_s),
        )
        self._observer.notify("on_outage", event)
        return admitted

    def settled(
        self,
        cost: Mapping[str, int | Decimal],
        written: Mapping[str, int | Decimal],
        *,
        failed: bool,
        lost: bool,
        ended_s: float | None = None,
    ) -> None:
        """Report the end of the block; ``ended_s`` is its moment if it was stored later."""
        event = SettleEvent(
            cost=dict(cost),
            written=dict(written),
            failed=failed,
            lost=lost,
            duration_s=(monotonic() if ended_s is None else ended_s) - self._entered_s,
            entity_id=self._entity_id,
            resource=self._resource,
        )
        self._observer.notify("on_settle", event, in_background=ended_s is not None)

    def lost(self) -> None:
        event = LostEvent(
            entity_id=self._entity_id, resource=self._resource, duration_s=self._since(None)
        )
        self._observer.notify("on_lost", event, in_background=True)

    def _since(self, began_s: float | None) -> float:
        return monotonic() - (self._began_s if began_s is None else began_s)


def _may_be_ctrl_c(error: BaseException) -> bool:
    """Tell whether an error may be an interrupt by the user; only the main thread gets those."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and is_main_thread


def raise_threshold(observer: Observer | None, crossing: Crossing) -> None:
    """Log a threshold that this client has marked, and tell the hooks of it."""
    event = ThresholdEvent(
        entity_id=crossing.entity_id,
        resource=crossing.resource,
        limit_name=crossing.limit.name,
        percent=crossing.percent,
        used=crossing.used,
        amount=crossing.limit.amount,
        window_start=crossing.window_start,
        window_end=crossing.window_end,
    )
    _log_threshold(event, crossing.limit)
    if observer is not None:
        observer.notify("on_threshold", event, in_background=True)


def raise_exhausted(observer: Observer | None, exhaustion: Exhaustion) -> None:
    """Log a quota that this client has marked as exhausted, and tell the hooks of it."""
    event = ExhaustedEvent(
        entity_id=exhaustion.entity_id,
        resource=exhaustion.resource,
        limit_name=exhaustion.limit.name,
        requested=exhaustion.requested,
        available=exhaustion.available,
        used=exhaustion.used,
        amount=exhaustion.limit.amount,
        window_start=exhaustion.window_start,
        window_end=exhaustion.window_end,
    )
    _log_exhausted(event, exhaustion.limit)
    if observer is not None:
        observer.notify("on_exhausted", event, in_background=True)


def _log_exhausted(event: ExhaustedEvent, limit: Limit) -> None:
    from zae_limiter.models.window_text import describe_exhausted
    from zae_limiter.quiet_logging import quiet_logger

    quiet_logger(__name__).warning(
        "%r on %r is exhausted: %s; %s",
        event.entity_id,
        event.resource,
        describe_exhausted(limit, event.requested, event.available, event.window_end),
        _top_up_advice(event),
    )


def _top_up_advice(event: ThresholdEvent | ExhaustedEvent) -> str:
    from zae_limiter.shell_words import command_line

    options = ("-a", f"{event.limit_name}=AMOUNT")
    command = command_line("bucket", "top-up", event.entity_id, event.resource, options=options)
    return f"for more in this window: {command}"


def _log_threshold(event: ThresholdEvent, limit: Limit) -> None:
    """Log a warning if all of a quota is used, otherwise an information."""
    from zae_limiter.models.window_text import describe_threshold
    from zae_limiter.quiet_logging import quiet_logger

    logger = quiet_logger(__name__)
    log = logger.warning if event.percent >= ALL_PERCENT else logger.info
    log(
        "%r on %r has reached a threshold of %s; %s",
        event.entity_id,
        event.resource,
        describe_threshold(limit, event.percent, event.used, event.window_end),
        "it is soft, so calls go on" if limit.soft else _top_up_advice(event),
    )


def observer_of(hooks: object, mode: object) -> Observer | None:
    """Return the observer of a limiter; None if there is nothing to observe."""
    if check_mode(mode) == "enforce" and hooks is None:
        return None
    return Observer(hooks, is_shadow=mode == "shadow")


def check_mode(mode: object) -> object:
    if mode not in ("enforce", "shadow"):
        raise ValidationError("mode", mode, 'must be "enforce" or "shadow"')
    return mode


def _check_hooks(hooks: Iterable[object]) -> None:
    for hook in hooks:
        if isinstance(hook, type):
            reason = f"is a class; pass an object of it: hooks={hook.__name__}()"
            raise ValidationError("hooks", hook.__name__, reason)
        methods = [getattr(hook, name) for name in NAMES if callable(getattr(hook, name, None))]
        if not methods:
            raise ValidationError("hooks", hook, f"must have one of {', '.join(NAMES)}")
        for method in methods:
            code = getattr(method, "__code__", None)
            if code is not None and code.co_flags & COROUTINE_FLAG:
                raise ValidationError(
                    "hooks", hook, f"{method.__name__} must be a plain function, not async"
                )
