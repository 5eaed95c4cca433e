"""The charge of a request, and the settlement of its true cost; the same for every framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.forgotten import disarmed
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.web.keys import RefusedKey
from zae_limiter.web.known import KnownEntities
from zae_limiter.web.options import LimiterKind, check_options

if TYPE_CHECKING:
    from zae_limiter.models.status import HeaderStyle
    from zae_limiter.web.answers import Refusal

_DEFAULT_COST: Final[Mapping[str, int]] = {"rpm": 1}

_UNSETTLED: Final = "cost_after failed; the request keeps the charge that was made before: %r"

logger = quiet_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebOutcome:
    """The outcome of a request: the response as it was sent.

    ``status`` is None if no response was sent, because the application failed (the server or
    another middleware answers then) or the client hung up before. ``complete`` is False if the
    client did not get the whole response.
    """

    status: int | None
    body_bytes: int
    complete: bool

    @classmethod
    def of_refusal(cls, answer: Refusal) -> WebOutcome:
        """Return the outcome of a request whose response is a refusal."""
        return cls(answer.status, len(answer.body), True)


class WebCharge(NamedTuple):
    """The charge of one request: the bucket and the amounts."""

    entity_id: str
    resource: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WebRule:
    """The rule by which requests are charged.

    ``key`` (the entity), ``resource`` and ``cost`` are values, or functions of the request. A
    request without a key (None) is answered by 401; with ``key_optional`` it is not limited. By
    default a request costs 1 of ``rpm``. ``cost_after`` is a function of the request and its
    ``WebOutcome``; it returns the true cost, which is settled when the response has ended. Requests
    for which ``skip`` returns true are not limited.

    ``known_only`` refuses keys whose entity is not registered. ``details`` puts the limits into the
    body of a 429. ``options`` go to ``acquire``. The charge is kept if the request fails.
    """

    key: Callable[[Any], Any] | str | None = None
    resource: Callable[[Any], Any] | str = "api"
    cost: Callable[[Any], Any] | Mapping[str, int] | None = None
    cost_after: Callable[[Any, WebOutcome], Any] | None = None
    skip: Callable[[Any], Any] | None = None
    style: HeaderStyle | None = "ietf"
    key_optional: bool = False
    known_only: bool = False
    details: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    _known: KnownEntities = field(default_factory=KnownEntities, init=False)

    def check(self, limiter: Any, *, awaited: tuple[str, ...], kind: LimiterKind) -> None:
        """Raise ValidationError for options that cannot work with this limiter.

        ``awaited`` names the functions that may be async, and ``kind`` is that of the limiter.
        """
        check_options(self, limiter, awaited=awaited, kind=kind)

    @property
    def waits(self) -> bool:
        """Whether an acquire may wait for capacity."""
        return self.options.get("timeout") is not None

    def charge(self, request: Any) -> WebCharge | None:
        """Return the charge of a request; None if the request is not limited."""
        if _value(self.skip, request):
            return None
        key = self._required(_value(self.key, request))
        if key is None:
            return None
        return WebCharge(key, _value(self.resource, request), _value(self._cost, request))

    async def charge_async(self, request: Any) -> WebCharge | None:
        """Do the same for functions that may be async."""
        if await _async_value(self.skip, request):
            return None
        key = self._required(await _async_value(self.key, request))
        if key is None:
            return None
        resource = await _async_value(self.resource, request)
        return WebCharge(key, resource, await _async_value(self._cost, request))

    @property
    def _cost(self) -> Any:
        return _DEFAULT_COST if self.cost is None else self.cost

    def _required(self, key: Any) -> Any:
        if key is None and not self.key_optional:
            message = "the request has no key; this service limits requests by their key"
            raise RefusedKey(401, "key_required", message)
        return key

    def acquire(self, limiter: Any, charge: WebCharge) -> Any:
        """Return the acquire of the charge, not yet entered."""
        acquire = self._checked_acquire(limiter, charge)
        if self.known_only:
            self._known.check(limiter, charge.entity_id)
        return acquire

    async def acquire_async(self, limiter: Any, charge: WebCharge) -> Any:
        """Do the same for an async limiter."""
        acquire = self._checked_acquire(limiter, charge)
        if self.known_only:
            await self._known.check_async(limiter, charge.entity_id)
        return acquire

    def _checked_acquire(self, limiter: Any, charge: WebCharge) -> Any:
        try:
            return disarmed(limiter.acquire(*charge, **{"on_error": "keep", **self.options}))
        except ValidationError as error:
            if error.field != "entity_id":
                raise  # this is a mistake of the application: only the key comes from the client
            raise RefusedKey(400, "key_invalid", f"the key {error.reason}") from error

    # --- the true cost

    def settle(self, lease: Any, request: Any, outcome: WebOutcome) -> None:
        """Settle the true cost of a request.

        If ``cost_after`` raises, the error is logged and the charge is kept, since the response is
        already on its way.
        """
        try:
            cost = None if self.cost_after is None else self.cost_after(request, outcome)
            if cost is not None:
                lease.settle(cost)
        except Exception:
            logger.exception(_UNSETTLED, lease)

    async def settle_async(self, lease: Any, request: Any, outcome: WebOutcome) -> None:
        """Do the same for an async or a sync lease; ``cost_after`` may be async."""
        if self.cost_after is None:
            return
        try:
            cost = await _awaited(self.cost_after(request, outcome))
            if cost is not None:
                await _awaited(lease.settle(cost))
        except Exception:
            logger.exception(_UNSETTLED, lease)


def _value(part: Any, request: Any) -> Any:
    return part(request) if callable(part) else part


async def _async_value(part: Any, request: Any) -> Any:
    return await _awaited(_value(part, request))


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value
