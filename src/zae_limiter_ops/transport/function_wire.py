"""Calls of DynamoDB and S3 from a Lambda function, with the credentials of its environment.

It does what an engine's client does for many callers and for weeks, for one caller and minutes: the
environment says where the table is, so botocore is not imported, and neither is what a function
needs seldom: an import of botocore takes longer than everything else at a cold start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from zae_limiter.exceptions import PermissionDenied, RateLimiterUnavailable, ValidationError
from zae_limiter.transport.calls import Deadline, Retries
from zae_limiter.transport.messages import Destination, Endpoint, HttpResponse, Proxy
from zae_limiter.transport.responses import parse_response
from zae_limiter.transport.signing import Credentials, Signer
from zae_limiter.transport.threads import Http, sleep

CALL_S = 5.0  # of one call with its retries: a batch of the aggregator has a minute by default
_PORT = 443  # of https
# Requests that are about several tables name them one by one.
_NAME_NO_TABLE = frozenset(
    {"BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems"}
)
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "TransactGetItems"})
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

T = TypeVar("T")


class FunctionWire:
    """Calls DynamoDB on one table, and puts objects into S3. Threads may share it.

    The ports of the sync tree take it for a client. ``request_timeout`` is for one call with its
    retries.
    """

    def __init__(
        self,
        table: str,
        environment: Mapping[str, str] = os.environ,
        *,
        request_timeout: float = CALL_S,
        repeatable: bool = False,
    ) -> None:
        """``repeatable``: every write may be repeated, as those of the aggregator."""
        self.table = table
        self._repeatable = repeatable
        self.request_timeout = request_timeout
        self._region = _region(environment)
        self._credentials = _credentials(environment)
        self._environment = environment
        self._dynamodb = _destination("dynamodb", self._region, environment)
        self._signer = Signer(self._dynamodb, self._region)
        self._http = Http()

    def deadline(self) -> Deadline:
        """The request timeout, from now on."""
        return Deadline(self.request_timeout)

    def call(
        self,
        operation: str,
        body: Mapping[str, Any] | str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        throttled: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Call an operation of DynamoDB; raises ``transport.errors``.

        A mapping gets the table's name; a text is the whole request. If the outcome of an attempt
        is unknown, it is repeated if it reads or is ``repeatable``.
        """
        if not isinstance(body, str):
            if operation not in _NAME_NO_TABLE:
                body = {"TableName": self.table, **body}
            body = _encode(body)
        payload = body.encode()
        may_repeat = repeatable or self._repeatable or operation in _READS
        retries = Retries(deadline or self.deadline(), may_repeat, throttled)

        def attempt(timeout: float, connect_timeout: float) -> dict[str, Any]:
            message = self._signer.message(operation, payload, self._credentials, time.time())
            response = self._send(self._dynamodb, message, timeout, connect_timeout)
            return parse_response(response, operation, self.table)

        return _repeat(attempt, retries)

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        """Put a gzipped object into a bucket; repeating it changes nothing."""
        from zae_limiter_ops.transport import s3  # most batches archive nothing

        if _endpoint_url(self._environment, "s3"):
            destination = _destination("s3", self._region, self._environment)
            path = f"/{bucket}/{name}"
        else:
            destination = _destination(f"{bucket}.s3", self._region, self._environment)
            path = f"/{name}"
        stored = s3.S3Object(path, body, "application/gzip")

        def attempt(timeout: float, connect_timeout: float) -> HttpResponse:
            message = s3.put_object(
                destination, self._region, stored, self._credentials, time.time()
            )
            response = self._send(destination, message, timeout, connect_timeout)
            s3.check_put(response, f"{bucket}/{name}")
            return response

        _repeat(attempt, Retries(self.deadline(), repeatable=True))

    def close(self) -> None:
        """Close all idle connections."""
        self._http.close()

    def _send(
        self, destination: Destination, message: bytes, timeout: float, connect_timeout: float
    ) -> HttpResponse:
        response = self._http.send(destination, message, timeout, connect_timeout)
        if response.status != 200 and destination.proxy is not None:
            from zae_limiter.transport.proxy import check_forwarded

            check_forwarded(response, destination)
        return response


def _repeat(attempt: Callable[[float, float], T], retries: Retries) -> T:
    while True:
        timeout, connect_timeout = retries.timeouts()
        try:
            return attempt(timeout, connect_timeout)
        except RateLimiterUnavailable as error:
            pause = retries.pause_after(error)
        if pause:
            sleep(pause)


def _region(environment: Mapping[str, str]) -> str:
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not region:
        raise ValidationError("region", None, "is not known; set AWS_REGION")
    return region


def public_host(service: str, region: str) -> str:
    """Return where AWS offers a service in a region; China has a domain of its own."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{service}.{region}.{domain}"


def _credentials(environment: Mapping[str, str]) -> Credentials:
    key = environment.get("AWS_ACCESS_KEY_ID")
    secret = environment.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise PermissionDenied(
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    # Local control planes set an empty token: that is none.
    return Credentials(key, secret, environment.get("AWS_SESSION_TOKEN") or None)


def _endpoint_url(environment: Mapping[str, str], service: str) -> str:
    specific = environment.get(f"AWS_ENDPOINT_URL_{service.upper()}")
    return specific or environment.get("AWS_ENDPOINT_URL") or ""


def _destination(service: str, region: str, environment: Mapping[str, str]) -> Destination:
    url = _endpoint_url(environment, service.rpartition(".")[2])
    if url:
        from zae_limiter.transport.messages import parse_endpoint  # not where AWS runs it

        endpoint = parse_endpoint(url)
    else:
        endpoint = Endpoint("https", public_host(service, region), _PORT)
    ca_bundle = environment.get("AWS_CA_BUNDLE") if endpoint.scheme == "https" else None
    return Destination(endpoint, _proxy(endpoint, environment), ca_bundle or None)


def _proxy(endpoint: Endpoint, environment: Mapping[str, str]) -> Proxy | None:
    """Find the proxy; most functions have none, and do not import what speaks to one."""
    if not any(name.lower().endswith("_proxy") for name in environment):
        return None
    from zae_limiter.transport.proxy import find_proxy

    return find_proxy(endpoint)
