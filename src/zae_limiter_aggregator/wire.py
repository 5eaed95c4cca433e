"""Calls of DynamoDB and S3 over our own wire, with the credentials of the environment.

botocore is not imported: that would take longer than everything else at a cold start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from zae_limiter.exceptions import PermissionDenied, RateLimiterUnavailable, ValidationError
from zae_limiter.transport.calls import Deadline, Retries
from zae_limiter.transport.messages import Destination, HttpResponse, parse_endpoint
from zae_limiter.transport.proxy import check_forwarded, find_proxy
from zae_limiter.transport.responses import parse_response
from zae_limiter.transport.signing import Credentials, Signer
from zae_limiter.transport.threads import Http, sleep

CALL_S = 5.0  # of one call with its retries: a batch has a minute by default
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

T = TypeVar("T")


class Wire:
    """Calls DynamoDB on one table, and puts objects into S3. Threads may share it."""

    def __init__(self, table: str, environment: Mapping[str, str] = os.environ) -> None:
        self._table = table
        self._region = _region(environment)
        self._credentials = _credentials(environment)
        self._environment = environment
        self._dynamodb = _destination(
            _endpoint_url(environment, "DYNAMODB") or public_url("dynamodb", self._region),
            environment,
        )
        self._signer = Signer(self._dynamodb, self._region)
        self._http = Http()

    @property
    def table(self) -> str:
        return self._table

    def call(self, operation: str, body: Mapping[str, Any] | str) -> dict[str, Any]:
        """Call an operation of DynamoDB that may be repeated; raises ``transport.errors``.

        A mapping gets the table's name; a text is the whole request.
        """
        if not isinstance(body, str):
            body = _encode({"TableName": self._table, **body})
        payload = body.encode()

        def attempt(timeout: float, connect_timeout: float) -> dict[str, Any]:
            message = self._signer.message(operation, payload, self._credentials, time.time())
            response = self._http.send(self._dynamodb, message, timeout, connect_timeout)
            if response.status != 200:
                check_forwarded(response, self._dynamodb)
            return parse_response(response, operation, self._table)

        return self._repeat(attempt)

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        """Put a gzipped object into a bucket; repeating it changes nothing."""
        from zae_limiter.transport import s3  # most batches archive nothing

        url = _endpoint_url(self._environment, "S3")
        path = f"/{bucket}/{name}"
        if not url:
            url = public_url(f"{bucket}.s3", self._region)
            path = f"/{name}"
        destination = _destination(url, self._environment)
        stored = s3.S3Object(path, body, "application/gzip")

        def attempt(timeout: float, connect_timeout: float) -> HttpResponse:
            message = s3.put_object(
                destination, self._region, stored, self._credentials, time.time()
            )
            response = self._http.send(destination, message, timeout, connect_timeout)
            if response.status != 200:
                check_forwarded(response, destination)
            s3.check_put(response, f"{bucket}/{name}")
            return response

        self._repeat(attempt)

    def close(self) -> None:
        """Close all idle connections."""
        self._http.close()

    def _repeat(self, attempt: Callable[[float, float], T]) -> T:
        retries = Retries(Deadline(CALL_S), repeatable=True)
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


def public_url(service: str, region: str) -> str:
    """Return where AWS offers a service in a region; China has a domain of its own."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://{service}.{region}.{domain}"


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
    specific = environment.get(f"AWS_ENDPOINT_URL_{service}")
    return specific or environment.get("AWS_ENDPOINT_URL") or ""


def _destination(url: str, environment: Mapping[str, str]) -> Destination:
    endpoint = parse_endpoint(url)
    ca_bundle = environment.get("AWS_CA_BUNDLE") if endpoint.scheme == "https" else None
    return Destination(endpoint, find_proxy(endpoint), ca_bundle or None)
