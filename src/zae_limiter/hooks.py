"""Hooks: what a limiter tells a program about its calls, as they happen.

>>> class Metrics(Hooks):
...     def on_reject(self, event):
...         rejected.labels(resource=event.resource).inc()
>>> limiter = RateLimiter(repository, hooks=Metrics())

A hook is called by the task or thread that made the call, in both trees as a plain function: it
should return at once. What it raises never reaches the caller; the first error is logged. A limiter
without hooks spends nothing on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.models.status import LimitStatus

NAMES = ("on_acquire", "on_reject", "on_settle", "on_outage", "on_shadow", "on_lost")
COROUTINE_FLAG = 0x80  # of a code object; the module inspect is slow to import


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireEvent:
    """An acquire was granted. ``statuses`` is what is left, ``cascade`` says that a parent paid."""

    entity_id: str
    resource: str
    consume: Mapping[str, int]
    statuses: tuple[LimitStatus, ...]
    duration_s: float  # the whole acquire, waiting included
    waited_s: float = 0.0  # of it, for tokens
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectEvent:
    """An acquire was rejected, or a ``consume`` within a lease (``is_acquire`` is False)."""

    entity_id: str
    resource: str
    consume: Mapping[str, int]
    statuses: tuple[LimitStatus, ...]
    retry_after_seconds: float
    duration_s: float
    waited_s: float = 0.0
    is_acquire: bool = True

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that did not have enough."""
        return tuple(status for status in self.statuses if status.exceeded)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowEvent(RejectEvent):
    """In shadow mode: a call that would have been rejected was let through, uncharged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleEvent:
    """A block has ended. ``cost`` is what it cost, ``written`` the debts and credits of its end.

    ``failed`` says that it raised, ``lost`` that the store did not take what was to be written.
    """

    entity_id: str
    resource: str
    cost: Mapping[str, int]
    written: Mapping[str, int]
    failed: bool
    lost: bool
    duration_s: float  # of the block


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEvent:
    """A lease has lost its slots: they were not renewed in time, so another call may take them.

    The call that holds the lease should stop; ``lease.lost`` says the same. The task or thread that
    renews leases calls the hook.
    """

    entity_id: str
    resource: str
    duration_s: float  # since the acquire


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageEvent:
    """The store did not answer an acquire or ``consume``; ``admitted`` if it was let through."""

    entity_id: str
    resource: str
    error: RateLimiterUnavailable
    admitted: bool
    duration_s: float


class Hooks:
    """Does nothing: override what you need. Any object with some of these methods will do."""

    def on_acquire(self, event: AcquireEvent) -> None:
        """An acquire was granted."""

    def on_reject(self, event: RejectEvent) -> None:
        """A call was rejected."""

    def on_settle(self, event: SettleEvent) -> None:
        """A block has ended, and its settlement is written."""

    def on_outage(self, event: OutageEvent) -> None:
        """The store did not answer."""

    def on_shadow(self, event: ShadowEvent) -> None:
        """A call was let through that would have been rejected."""

    def on_lost(self, event: LostEvent) -> None:
        """A lease has lost its slots."""


class Observer:
    """The mode of a limiter and its hooks. An enforcing limiter without hooks has none."""

    __slots__ = ("_failed", "_hooks", "is_shadow")

    def __init__(self, hooks: object = None, *, is_shadow: bool = False) -> None:
        self.is_shadow = is_shadow
        listed = () if hooks is None else hooks if isinstance(hooks, list | tuple) else (hooks,)
        _check_hooks(listed)
        self._hooks = tuple(listed)
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

    def notify(self, name: str, event: object) -> None:
        """Call one method of every hook."""
        for position, hook in enumerate(self._hooks):
            method = getattr(hook, name, None)
            if method is None:
                continue
            try:
                method(event)
            except Exception as error:  # noqa: BLE001 - an observer must not break what it observes
                self._log_once(position, name, hook, error)

    def _log_once(self, position: int, name: str, hook: object, error: Exception) -> None:
        if (position, name) not in self._failed:
            self._failed.add((position, name))
            # Not before it is needed: `import zae_limiter` does without logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).error(
                "%s.%s raised; further errors of it are not logged",
                type(hook).__name__,
                name,
                exc_info=error,
            )


class AcquireWatch:
    """Watches one acquire and its lease: measures times, makes events, lets shadowed calls pass.

    ``would_reject`` are the statuses of the last rejection that shadow mode let through,
    ``waited_s`` is for how long the acquire has slept until its tokens were there.
    """

    __slots__ = (
        "_began_s",
        "_entered_s",
        "_entity_id",
        "_observer",
        "_resource",
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

    @property
    def is_shadow(self) -> bool:
        return self._observer.is_shadow

    def acquired(
        self, consume: Mapping[str, int], statuses: tuple[LimitStatus, ...], *, cascade: bool
    ) -> None:
        self._entered_s = monotonic()
        event = AcquireEvent(
            consume=dict(consume),
            statuses=statuses,
            duration_s=self._entered_s - self._began_s,
            waited_s=self.waited_s,
            cascade=cascade,
            entity_id=self._entity_id,
            resource=self._resource,
        )
        self._observer.notify("on_acquire", event)

    def rejected(
        self, consume: Mapping[str, int], error: RateLimitExceeded, began_s: float | None = None
    ) -> bool:
        """Report a rejection of the acquire, or of a consume that began at ``began_s``.

        Returns whether shadow mode lets it through.
        """
        is_shadow, statuses = self.is_shadow, tuple(error.statuses)
        event = (ShadowEvent if is_shadow else RejectEvent)(
            consume=dict(consume),
            statuses=statuses,
            retry_after_seconds=error.retry_after_seconds,
            duration_s=self._since(began_s),
            waited_s=self.waited_s if began_s is None else 0.0,
            is_acquire=began_s is None,
            entity_id=self._entity_id,
            resource=self._resource,
        )
        if is_shadow:
            self.would_reject = statuses
        self._observer.notify("on_shadow" if is_shadow else "on_reject", event)
        return is_shadow

    def failed(
        self, error: RateLimiterUnavailable, *, admitted: bool, began_s: float | None = None
    ) -> bool:
        """Report an outage; returns ``admitted``."""
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
        self, cost: Mapping[str, int], written: Mapping[str, int], *, failed: bool, lost: bool
    ) -> None:
        event = SettleEvent(
            cost=dict(cost),
            written=dict(written),
            failed=failed,
            lost=lost,
            duration_s=monotonic() - self._entered_s,
            entity_id=self._entity_id,
            resource=self._resource,
        )
        self._observer.notify("on_settle", event)

    def lost(self) -> None:
        event = LostEvent(
            entity_id=self._entity_id, resource=self._resource, duration_s=self._since(None)
        )
        self._observer.notify("on_lost", event)

    def _since(self, began_s: float | None) -> float:
        return monotonic() - (self._began_s if began_s is None else began_s)


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
        methods = [getattr(hook, name) for name in NAMES if callable(getattr(hook, name, None))]
        if not methods:
            raise ValidationError("hooks", hook, f"must have one of {', '.join(NAMES)}")
        for method in methods:
            code = getattr(method, "__code__", None)
            if code is not None and code.co_flags & COROUTINE_FLAG:
                raise ValidationError(
                    "hooks", hook, f"{method.__name__} must be a plain function, not async"
                )
