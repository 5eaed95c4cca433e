"""A dependency for FastAPI: limits some endpoints, each with its own key and cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.web.asgi import ANSWERS_REJECTIONS, charge_of
from zae_limiter.web.rules import Error, WebCharge, WebRule, is_bad_key, refusal

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
    style: HeaderStyle = "ietf",
    **options: Any,
) -> Callable[[Request, Response], AsyncIterator[Lease | None]]:
    """Return a dependency that charges the request and yields its lease.

    ``lease: Annotated[Lease, Depends(rate_limit(limiter, key=header("x-api-key")))]``

    Key, resource and cost are values or functions of the request, async ones included. The lease
    lasts until the response has ended, also while it streams; the endpoint settles a cost that is
    known later: ``await lease.settle(tpm=812)``. The charge is kept if the request fails. For a key
    of None nothing is charged, and the lease is None. Other options go to ``acquire``.

    A rejection is a 429 whose ``detail`` is ``as_dict()``; inside of an ``AsgiMiddleware`` its body
    is ``as_dict()`` itself. ``Depends(..., scope="function")`` would end the lease too early.
    """
    rule = WebRule(key=key, resource=resource, cost=cost, style=style, options=options)

    async def charged(request: Request, response: Response) -> AsyncIterator[Lease | None]:
        charge = await charge_of(rule, request)
        if charge is None:
            yield None
            return
        # Entered and left by hand: an error of the endpoint is not one of the acquire.
        acquire, lease = await _entered(rule, limiter, charge, request)
        response.headers.update(lease.headers(style))
        try:
            yield lease
        except BaseException as error:
            await acquire.__aexit__(type(error), error, None)
            raise
        await acquire.__aexit__(None, None, None)

    return charged


async def _entered(
    rule: WebRule, limiter: RateLimiter, charge: WebCharge, request: Request
) -> tuple[Acquire, Lease]:
    """Charge the request; a rejection becomes a response of FastAPI."""
    try:
        acquire: Acquire = rule.acquire(limiter, charge)
        return acquire, await acquire.__aenter__()
    except (RateLimitExceeded, RateLimiterUnavailable) as error:
        if ANSWERS_REJECTIONS in request.scope:
            raise
        raise http_exception(error, rule.style) from error
    except ValidationError as error:
        if not is_bad_key(error):
            raise
        raise HTTPException(400, str(error)) from error


def http_exception(error: Error, style: HeaderStyle = "ietf") -> HTTPException:
    """Turn a rejection or an outage into the exception that FastAPI answers with its status."""
    answer = refusal(error, style)
    detail: Any = error.as_dict() if isinstance(error, RateLimitExceeded) else str(error)
    headers = {name: value for name, value in answer.headers if not name.startswith("Content-")}
    return HTTPException(answer.status, detail, headers)
