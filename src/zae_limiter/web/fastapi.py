"""A dependency for FastAPI that limits single endpoints, each with its own key and cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.web.answers import AnsweredError, body_of, lease_headers, refusal
from zae_limiter.web.asgi import HELD_RESPONSE, HeldResponse, WatchedAcquire
from zae_limiter.web.keys import RefusedKey
from zae_limiter.web.options import ASYNC, FUNCTIONS
from zae_limiter.web.rules import WebRule

if TYPE_CHECKING:
    from zae_limiter._async.acquire import Acquire
    from zae_limiter._async.lease import Lease
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter.models.status import HeaderStyle


def rate_limit(
    limiter: RateLimiter,
    *,
    key: Callable[[Request], Any] | str,
    resource: Callable[[Request], Any] | str = "api",
    cost: Callable[[Request], Any] | Mapping[str, int] | None = None,
    skip: Callable[[Request], Any] | None = None,
    style: HeaderStyle | None = "ietf",
    key_optional: bool = False,
    known_only: bool = False,
    details: bool = False,
    **options: Any,
) -> Callable[[Request, Response], AsyncIterator[Lease | None]]:
    """Return a dependency that charges the request and yields its lease.

    ``lease: Annotated[Lease, Depends(rate_limit(limiter, key=hashed_header("x-api-key")))]``

    Key, resource and cost are values, or functions of the request, which may be async. The lease
    lasts until the response has ended, even if it streams. If the cost is known only later, the
    endpoint settles it: ``await lease.settle(tpm=812)``. The charge is kept if the request fails.
    Other options go to ``acquire``.

    A request without a key is answered by 401; with ``key_optional`` it is not limited, and its
    lease is None. The same holds for requests for which ``skip`` returns true. With ``known_only``,
    keys of entities that are not registered are answered by 401.

    A rejection is a 429 that says in its ``detail`` when to retry; ``details`` adds the limits. The
    headers of a response tell the limits before the endpoint runs.

    Inside of an ``AsgiMiddleware``, the middleware answers rejections, with its own ``details``. A
    client that hangs up while it waits (``timeout``) leaves the waiting line, and the headers tell
    the limits at the start of the response.

    Do not use ``Depends(..., scope="function")``: it would end the lease too early.
    """
    if "cost_after" in options:
        raise ValidationError(
            "cost_after",
            options["cost_after"],
            "is an option of middleware; an endpoint settles its cost: await lease.settle(tpm=812)",
        )
    rule = WebRule(
        key=key,
        resource=resource,
        cost=cost,
        skip=skip,
        style=style,
        key_optional=key_optional,
        known_only=known_only,
        details=details,
        options=options,
    )
    rule.check(limiter, awaited=FUNCTIONS, kind=ASYNC)

    async def charged(request: Request, response: Response) -> AsyncIterator[Lease | None]:
        # Entered and left by hand, since only errors of the acquire become a response here, and
        # errors of the endpoint do not.
        acquire, lease = await _entered(rule, limiter, request)
        if acquire is None:
            yield None
            return
        try:
            held: HeldResponse | None = request.scope.get(HELD_RESPONSE)
            if held is None:
                response.headers.update(lease_headers(lease, style))
            else:
                held.limit(lease, style)
            yield lease
        except BaseException as error:
            await acquire.__aexit__(type(error), error, None)
            raise
        await acquire.__aexit__(None, None, None)

    return charged


async def _entered(
    rule: WebRule, limiter: RateLimiter, request: Request
) -> tuple[Acquire | WatchedAcquire | None, Lease | None]:
    """Charge the request and return acquire and lease; a rejection becomes an HTTPException."""
    held: HeldResponse | None = request.scope.get(HELD_RESPONSE)
    try:
        charge = await rule.charge_async(request)
        if charge is None:
            return None, None
        acquire: Acquire | WatchedAcquire = await rule.acquire_async(limiter, charge)
        if held is not None and rule.waits:
            acquire = WatchedAcquire(acquire, held)
        return acquire, await acquire.__aenter__()
    except (RateLimitExceeded, RateLimiterUnavailable) as error:
        if held is not None:
            raise
        raise http_exception(error, rule) from error
    except RefusedKey as error:
        raise http_exception(error, rule) from error


def http_exception(error: AnsweredError, rule: WebRule) -> HTTPException:
    """Turn a refusal into the exception that FastAPI answers with its status."""
    answer = refusal(error, rule.style, details=rule.details)
    headers = {name: value for name, value in answer.headers if not name.startswith("Content-")}
    detail: Any = body_of(error, details=rule.details)
    return HTTPException(answer.status, detail, headers)
