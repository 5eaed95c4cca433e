"""Calls PutObject of S3, for the aggregator, which stores one object at a time."""

from __future__ import annotations

import os
import re
import time
from hashlib import sha256
from hmac import digest
from typing import NamedTuple
from urllib.parse import quote

from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.runtime.calls import sleep
from zae_limiter.store_errors import NotSent, ServerFault, Throttled
from zae_limiter.transport.access import find_destination
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter.transport.calls import Retries
from zae_limiter.transport.errors import Denied, Refused
from zae_limiter.transport.messages import Destination, Endpoint, HttpResponse, parse_endpoint
from zae_limiter.transport.proxy import check_forwarded
from zae_limiter.transport.signing import USER_AGENT, Credentials, signing_key
from zae_limiter.transport.threads import Http
from zae_limiter_ops.transport.partitions import s3_host

SERVICE = "s3"
PUT_S = 5.0  # for one object with its retries: a batch of the aggregator has a minute by default
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,80})</Code>")
_THROTTLED = frozenset({"SlowDown", "ServiceUnavailable", "RequestLimitExceeded"})
_TEMPORARY = frozenset({"RequestTimeout", "OperationAborted"})  # a repeated request succeeds


class S3Object(NamedTuple):
    """An object to store; ``path`` starts with ``/``."""

    path: str
    body: bytes
    content_type: str = "application/octet-stream"
    content_encoding: str = ""


def put_object(
    destination: Destination,
    region: str,
    stored: S3Object,
    credentials: Credentials,
    epoch_s: float,
) -> bytes:
    """Return the bytes of the whole signed request.

    Unlike other services, S3 requires the digest of the body as a header, and paths encoded once.
    """
    endpoint, proxy = destination.endpoint, destination.proxy
    path = endpoint.path.rstrip("/") + quote(stored.path, safe="/~")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(epoch_s)))
    body_digest = sha256(stored.body).hexdigest()
    headers = {
        "content-type": stored.content_type,
        "host": endpoint.host_header,
        "x-amz-content-sha256": body_digest,
        "x-amz-date": stamp,
    }
    if stored.content_encoding:
        headers["content-encoding"] = stored.content_encoding
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    names = sorted(headers)
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    canonical = f"PUT\n{path}\n\n{lines}\n{';'.join(names)}\n{body_digest}"
    scope = f"{stamp[:8]}/{region}/{SERVICE}/aws4_request"
    hashed = sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    key = signing_key(credentials, stamp[:8], region, SERVICE)
    signature = digest(key, to_sign.encode(), "sha256").hex()
    target, proxy_header = path, ""
    if proxy is not None and destination.is_forwarded:
        target = endpoint._replace(path=path).url
        proxy_header = proxy.authorization_header
    head = (
        f"PUT {target} HTTP/1.1\r\n{proxy_header}"
        + "".join(f"{name}: {headers[name]}\r\n" for name in names)
        + f"user-agent: {USER_AGENT}\r\naccept-encoding: identity\r\n"
        f"authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}\r\n"
        f"content-length: {len(stored.body)}\r\n\r\n"
    )
    return head.encode() + stored.body


def check_put(response: HttpResponse, path: str) -> None:
    """Raise an error unless the response reports success."""
    if response.status == 200:
        return
    found = _CODE.search(response.body)
    code = found.group(1).decode() if found else str(response.status)
    message = f"S3 refused to store {path!r} ({code})"
    if code in _THROTTLED or response.status in (429, 503):
        raise Throttled(f"{message}; the request is repeated", code=code, of_item=False)
    if response.status >= 500 or code in _TEMPORARY:
        raise ServerFault(f"S3 failed to store {path!r} ({code})")
    if response.status in (401, 403):
        raise Denied(
            f"{message}; check the permissions of the role and the policy of the bucket", code=code
        )
    raise Refused(f"{message}; check that the bucket exists and is in this region", code=code)


class ObjectStore:
    """Stores objects in buckets with the credentials of the environment.

    Threads may share an instance.
    """

    def __init__(self) -> None:
        self._config = AwsConfig()
        self._http = Http()

    def put(self, bucket: str, name: str, body: bytes) -> None:
        """Store a gzipped object in a bucket; storing the same object again changes nothing."""
        try:
            self._put(bucket, name, body)
        except NotSent as error:
            raise NotSent(
                f"{error}; a function in a VPC reaches S3 by a gateway endpoint or a NAT gateway"
            ) from error

    def _put(self, bucket: str, name: str, body: bytes) -> None:
        endpoint, region, path = self._address(bucket, name)
        destination = find_destination(endpoint, self._config)
        credentials, _ = self._config.credentials(endpoint.is_local)
        stored = S3Object(path, body, "application/gzip")
        retries = Retries(Deadline(PUT_S), repeatable=True)
        while True:
            timeout, connect_timeout = retries.timeouts()
            message = put_object(destination, region, stored, credentials, time.time())
            try:
                response = self._http.send(destination, message, timeout, connect_timeout)
                check_forwarded(response, destination)
                check_put(response, f"{bucket}/{name}")
                return
            except RateLimiterUnavailable as error:
                sleep(retries.pause_after(error))

    def close(self) -> None:
        """Close all idle connections."""
        self._http.close()

    def _address(self, bucket: str, name: str) -> tuple[Endpoint, str, str]:
        """Return the endpoint, region and path of an object; on AWS each bucket has a host."""
        url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if url:
            endpoint, region = self._config.endpoint_and_region(parse_endpoint(url), None)
            return endpoint, region, f"/{bucket}/{name}"
        _, region = self._config.endpoint_and_region(None, None)
        return parse_endpoint(f"https://{s3_host(bucket, region)}"), region, f"/{name}"
