"""Messages of the protocol: descriptors are read from requests, decisions become responses."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from envoy.service.ratelimit.v3 import rls_pb2

from zae_limiter import Limit
from zae_limiter.exceptions import ValidationError
from zae_limiter.headers import seconds_until_full
from zae_limiter.rejection import NEVER_FITS_S
from zae_limiter.web.answers import body_of
from zae_limiter_service.envoy.decisions import DescriptorAsk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter.models.limit import Period
    from zae_limiter.models.status import LimitStatus
    from zae_limiter_service.envoy.decisions import RateLimitAnswer, Verdict
    from zae_limiter_service.envoy.rules import DescriptorTarget

Response = rls_pb2.RateLimitResponse
Unit = Response.RateLimit.Unit
MAX_UINT32 = 2**32 - 1
UNITS = {1: Unit.SECOND, 60: Unit.MINUTE, 3600: Unit.HOUR, 86_400: Unit.DAY, 604_800: Unit.WEEK}
SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
CALENDAR: dict[str, Period] = {"MONTH": "month", "YEAR": "year"}


def entries_of(descriptor: Any) -> dict[str, str]:
    """Return the entries of a descriptor; the first one of a repeated key counts."""
    entries: dict[str, str] = {}
    for entry in descriptor.entries:
        entries.setdefault(entry.key, entry.value)
    return entries


def ask_of(target: DescriptorTarget, descriptor: Any, hits_of_request: int) -> DescriptorAsk:
    """Return what a descriptor asks for. Its own hits win over those of the request."""
    if descriptor.HasField("hits_addend"):
        hits = descriptor.hits_addend.value
    else:
        hits = hits_of_request or 1  # the protocol's default
    override = None
    if descriptor.HasField("limit"):
        override = limit_of(target.counted, descriptor.limit)
    return DescriptorAsk(target, hits, override)


def limit_of(name: str, override: Any) -> Limit:
    """Return the limit that Envoy sets; months and years are calendar windows."""
    if override.unit not in Unit.values():  # enumerations of protobuf may have unknown values
        raise ValidationError("limit.unit", override.unit, "is not known; use a rule instead")
    unit = Unit.Name(override.unit)
    if unit in CALENDAR:
        return Limit.quota(name, override.requests_per_unit, per=CALENDAR[unit])
    seconds = SECONDS.get(unit, 60)
    amount = override.requests_per_unit
    return Limit.custom(name, amount, amount, seconds)


def response_of(
    decision: RateLimitAnswer, asks: Sequence[DescriptorAsk | None], now_ms: int
) -> Any:
    """Return the response: codes, what remains, when limits are full again, and headers."""
    response = Response(overall_code=Response.OK if decision.is_admitted else Response.OVER_LIMIT)
    for ask, verdict in zip(asks, decision.verdicts, strict=True):
        _add_status(response.statuses.add(), ask, verdict, now_ms)
    for name, value in decision.headers.items():
        response.response_headers_to_add.add(key=name, value=value)
    if decision.rejected is not None:
        response.response_headers_to_add.add(key="content-type", value="application/json")
        response.raw_body = json.dumps(body_of(decision.rejected)).encode()
    return response


def _add_status(into: Any, ask: DescriptorAsk | None, verdict: Verdict | None, now_ms: int) -> None:
    if ask is None or verdict is None:
        into.code = Response.OK
        return
    if not verdict.is_tried:
        into.code = Response.UNKNOWN
        return
    into.code = Response.OVER_LIMIT if verdict.is_rejected else Response.OK
    status = _shown(verdict.statuses, ask.target.counted)
    if status is None:  # let through in an outage
        return
    if status.limit.currency is None:  # the protocol has no unit of money, and 0.50 would be 0
        _add_limit(into, status)
    seconds = seconds_until_full(status, now_ms)
    if status.exceeded:
        seconds = status.retry_after_seconds
    into.duration_until_reset.FromMilliseconds(_milliseconds(seconds))


def _add_limit(into: Any, status: LimitStatus) -> None:
    limit = status.limit
    per_window = limit.amount if limit.is_quota else limit.refill_amount
    into.current_limit.name = limit.name
    into.current_limit.requests_per_unit = min(int(per_window), MAX_UINT32)
    into.current_limit.unit = UNITS.get(limit.refill_period_seconds, Unit.UNKNOWN)
    into.limit_remaining = min(max(0, int(status.available)), MAX_UINT32)


def _milliseconds(seconds: float) -> int:
    return NEVER_FITS_S * 1000 if math.isinf(seconds) else math.ceil(seconds * 1000)


def _shown(statuses: Sequence[LimitStatus], counted: str) -> LimitStatus | None:
    """Return the longest rejection, or else the tightest status of the limit that counts hits."""
    exceeded = [status for status in statuses if status.exceeded]
    if exceeded:
        return max(exceeded, key=lambda status: status.retry_after_seconds)
    of_limit = [status for status in statuses if status.limit_name == counted] or statuses
    return min(of_limit, key=lambda status: status.available, default=None)
