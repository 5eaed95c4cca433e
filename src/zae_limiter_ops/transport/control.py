"""Calls to CloudFormation, Lambda and other services of the control plane, with botocore.

Our own client covers the data plane of DynamoDB only. Calls to the control plane are few and use
many protocols, so they leave the work to botocore.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from zae_limiter.exceptions import (
    InfrastructureError,
    PermissionDenied,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter.transport.messages import parse_endpoint

T = TypeVar("T")

CONNECT_S = 3.0
SILENT_ATTEMPTS = 2  # without an answer, more of them rarely help: region or network is wrong
READ_S = 60.0  # for one answer; UpdateFunctionCode sends the whole package
# An operator must not wait for what does not answer. All services that were never heard of get so
# much time together, for finding credentials and addresses, connecting and answering.
FIRST_ANSWER_S = 3.0
ATTEMPTS = 6  # the control plane throttles; botocore backs off between attempts
INVOKE_S = 910.0  # for the answer of a function, which may take 900 s
MAX_PAYLOAD = 6_000_000  # bytes; Lambda's limit for a synchronous invocation
LOCAL_REGION = "us-east-1"
# Domains of AWS's endpoints in all partitions; the hosts of VPC endpoints end the same way.
AWS_DOMAINS = (
    *(".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws"),
    *(".amazonwebservices.com.cn", ".amazonwebservices.eu"),
    *(".ic.gov", ".sgov.gov", ".adc-e.uk", ".aws.scloud"),
)
ANY_STACK = "zae-limiter"  # "there is no such stack" also shows that CloudFormation answers
_INVOKE = "lambda, invoked"  # the key of a second Lambda client, which waits longer
# Where settings call a service by another name than botocore's clients do.
_NAMES_IN_SETTINGS = {"logs": "cloudwatch_logs"}
_NO_CONNECTION = ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError")
_DENIED = ("AccessDenied", "Unauthorized", "InvalidClientTokenId", "SignatureDoesNotMatch")


class ControlError(InfrastructureError):
    """The control plane refused a call; ``code`` is the error code of the service."""

    def __init__(self, service: str, code: str, reason: str) -> None:
        self.service = service
        self.code = code
        self.reason = reason
        super().__init__(f"{service} refused the call ({code}): {reason}")

    @property
    def is_throttling(self) -> bool:
        return "Throttl" in self.code or self.code == "RequestLimitExceeded"


class Unreachable(InfrastructureError):
    """No connection to a service could be made."""


class Control:
    """The control plane of a region or endpoint. Calls block; threads may share an instance."""

    def __init__(self, region: str | None = None, endpoint_url: str | None = None) -> None:
        # botocore itself does not read AWS_REGION, which the data plane reads first.
        self.region = region or os.environ.get("AWS_REGION") or None
        self.endpoint_url = endpoint_url
        self._clients: dict[str, Any] = {}
        self._session: Any = None
        self._unknown_region: InfrastructureError | None = None
        self._serves_stacks: bool | None = None
        self._heard: set[str] = set()  # where a service has answered
        self._silent: dict[str, InfrastructureError] = {}  # where none has answered in time
        self._patience_s = FIRST_ANSWER_S
        self._lock = threading.Lock()

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation by botocore's method name, and raise our own errors.

        A service that was never heard of must answer within a few seconds. If it does not, its
        later calls fail at once.
        """
        where = self._where(service)
        if where in self._heard or service == _INVOKE:  # a function may take long by right
            return self._ask(service, operation, **parameters)
        if where in self._silent:
            raise self._silent[where]
        if self._patience_s > 0:
            with suppress(Exception):  # reading models takes a while; the call raises its error
                self._client(service)
        began = time.monotonic()
        try:
            answer = within(self._patience_s, partial(self._ask, service, operation, **parameters))
        except Unreachable:
            self._patience_s -= time.monotonic() - began
            raise
        if answer is not None:
            return answer
        self._silent[where] = self._no_answer(_api_name(service))
        self._patience_s -= time.monotonic() - began
        raise self._silent[where]

    def _ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        if self._unknown_region is not None:  # no service has a host in an unknown region
            raise self._unknown_region
        try:
            answer: dict[str, Any] = getattr(self._client(service), operation)(**parameters)
            self._heard.add(self._where(service))
            _read_streams(answer)
        except ZAELimiterError:  # there is no client to call
            raise
        except ClientError as error:
            self._heard.add(self._where(service))
            raise _refused(_api_name(service), operation, error) from error
        except BotoCoreError as error:
            raise self._failed(_api_name(service), error) from error
        except Exception as error:  # for example, botocore could not parse the answer
            raise InfrastructureError(
                f"the answer of {_api_name(service)} to {operation} cannot be read "
                f"({type(error).__name__}); check the endpoint and any proxy before it"
            ) from error
        return answer

    def _where(self, service: str) -> str:
        """Return what answers for a service: an endpoint, which many services may share."""
        name = _api_name(service)
        return self._url_of(name) or name

    def _no_answer(self, service: str) -> InfrastructureError:
        place = self._shown_place(service)
        if self._patience_s <= 0:
            return Unreachable(f"{service} was not asked at {place}: other services do not answer")
        return Unreachable(
            f"{service} does not answer at {place} (within {FIRST_ANSWER_S:g} s); check the "
            "region, the endpoint and the network"
        )

    def _shown_place(self, service: str) -> str:
        url = self._url_of(service)
        return url or f"region {self.region or 'of the AWS configuration'}"

    def serves_stacks(self) -> bool:
        """Return whether the endpoint has CloudFormation.

        If the settings do not tell, the endpoint is asked once.
        """
        if self._serves_stacks is None:
            self._serves_stacks = self._has_stacks_by_settings()
        if self._serves_stacks is None:
            self._serves_stacks = self._has_stacks_by_call()
        return self._serves_stacks

    def require_stacks(self, purpose: str, advice: str) -> None:
        """Raise InfrastructureError if the endpoint has no CloudFormation.

        Whoever works with a local table must not change anything on AWS.
        """
        if not self.serves_stacks():
            raise InfrastructureError(
                f"{purpose}, and this endpoint has no CloudFormation; {advice}"
            )

    def _has_stacks_by_call(self) -> bool:
        """Ask for a stack. Servers without CloudFormation differ in how they refuse the call."""
        try:
            self.call("cloudformation", "describe_stacks", StackName=ANY_STACK)
        except PermissionDenied:
            return True
        except ControlError as error:
            return error.is_throttling or "does not exist" in error.reason
        except Unreachable:  # a server that is down may have CloudFormation all the same
            raise
        except InfrastructureError:
            return False
        return True

    def _has_stacks_by_settings(self) -> bool | None:
        """Return whether the settings say that the endpoint has CloudFormation.

        True: the table is on AWS. False: the settings name an endpoint for DynamoDB, such as a
        local server, but none for CloudFormation. None: the settings leave it open.
        """
        if self._is_on_aws("dynamodb"):
            return True
        return False if self._url_of("cloudformation") is None else None

    def _is_on_aws(self, service: str) -> bool:
        """Return whether calls to a service go to AWS."""
        url = self._url_of(service)
        return url is None or parse_endpoint(url).host.endswith(AWS_DOMAINS)

    def _url_of(self, service: str) -> str | None:
        """Return the endpoint that the argument or the settings name for a service."""
        name = _NAMES_IN_SETTINGS.get(service, service)
        return self.endpoint_url or AwsConfig().configured_url(name)

    def _refuse_to_leave(self, service: str) -> None:
        """Raise if a call beside a local table would go to AWS, because no endpoint is named."""
        if self._url_of(service) is None and not self._is_on_aws("dynamodb"):
            name = _NAMES_IN_SETTINGS.get(service, service)
            raise InfrastructureError(
                f"no endpoint is named for {service}, and DynamoDB has one that is not AWS's; name "
                f"one for both: AWS_ENDPOINT_URL_{name.upper()}, or AWS_ENDPOINT_URL for all "
                "services"
            )

    def pages(self, service: str, operation: str, **parameters: Any) -> list[dict[str, Any]]:
        """Call an operation for all its pages, and return the answers."""
        pages: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while not pages or token:
            answer = self.call(service, operation, **parameters, **token)
            pages.append(answer)
            following = answer.get("NextToken")
            token = {"NextToken": following} if following else {}
        return pages

    def invoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Invoke a function once, and return its answer."""
        body = json.dumps(payload).encode()
        if len(body) > MAX_PAYLOAD:
            raise ControlError(
                "lambda",
                "RequestTooLarge",
                f"{function} takes at most {MAX_PAYLOAD} bytes; divide the manifest, or apply it "
                "with --direct",
            )
        answer = self.call(_INVOKE, "invoke", FunctionName=function, Payload=body)
        try:
            document = json.loads(answer["Payload"].read())
        except (ValueError, RecursionError):
            raise ControlError(
                "lambda",
                "FunctionError",
                f"the answer of {function} is not JSON; check the endpoint",
            ) from None
        if "FunctionError" in answer or not isinstance(document, dict):
            reason = document.get("errorMessage") if isinstance(document, dict) else document
            raise ControlError("lambda", "FunctionError", f"{function} failed: {reason}")
        return document

    def read_object(self, bucket: str, key: str) -> bytes:
        """Return the content of an object in S3."""
        content: bytes = self.call("s3", "get_object", Bucket=bucket, Key=key)["Body"].read()
        return content

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._new_client(service)
            return self._clients[service]

    def _new_client(self, service: str) -> Any:
        from botocore.config import Config
        from botocore.session import Session

        self._refuse_to_leave(_api_name(service))
        if self._session is None:
            self._session = Session()
            self._session.register_component("data_loader", _service_models())
        session = self._session
        options: dict[str, Any] = {"region_name": self.region}
        url = self._url_of(_api_name(service))
        if url and parse_endpoint(url).is_local:
            options["region_name"] = (
                self.region or session.get_config_variable("region") or LOCAL_REGION
            )
            if session.get_credentials() is None:  # a local server accepts any credentials
                options |= {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        is_invoking = service == _INVOKE  # a late answer must not invoke the function again
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=INVOKE_S if is_invoking else READ_S,
            retries={"mode": "standard", "total_max_attempts": 1 if is_invoking else ATTEMPTS},
        )
        client = session.create_client(
            _api_name(service),
            endpoint_url=self.endpoint_url,
            config=config,
            **options,
        )
        client.meta.events.register("needs-retry", _give_up)
        return client

    def _failed(self, service: str, error: Exception) -> Exception:
        """Return our error for an error that botocore raises without an answer of the service."""
        kind = type(error).__name__
        if kind == "NoRegionError":
            return ValidationError(
                "region", None, "is not known; pass --region, or set AWS_REGION or a profile"
            )
        if "Credential" in kind or "Token" in kind or kind in ("ProfileNotFound", "SSOError"):
            return PermissionDenied(
                f"AWS credentials were not found or have expired ({kind}); set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
            )
        where = self._shown_place(service)
        if self.endpoint_url is None and _has_no_address(error):
            self._unknown_region = InfrastructureError(
                f"{service} has no host in {where}{self._similar_region()}; check the region and "
                "the network"
            )
            return self._unknown_region
        kind_of_error = Unreachable if kind in _NO_CONNECTION else InfrastructureError
        return kind_of_error(
            f"{service} cannot be reached at {where} ({kind}); check the region, the endpoint "
            "and the network"
        )

    def _similar_region(self) -> str:
        """Return a hint at regions with a similar name, or empty text."""
        region = self.region or self._session.get_config_variable("region")
        known = self._session.get_available_regions("dynamodb")
        similar = [] if region in known else get_close_matches(str(region), known, n=2, cutoff=0.8)
        return f" (did you mean {' or '.join(sorted(similar))}?)" if similar else ""


class AControl(Control):
    """The control plane for an event loop: each call runs in a worker thread."""

    async def acall(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.call, service, operation, **parameters)

    async def apages(self, service: str, operation: str, **parameters: Any) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.pages, service, operation, **parameters)

    async def aserves_stacks(self) -> bool:
        return await asyncio.to_thread(self.serves_stacks)

    async def arequire_stacks(self, purpose: str, advice: str) -> None:
        await asyncio.to_thread(self.require_stacks, purpose, advice)

    async def ainvoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self.invoke, function, payload)

    async def aread_object(self, bucket: str, key: str) -> bytes:
        return await asyncio.to_thread(self.read_object, bucket, key)


@functools.cache
def _service_models() -> Any:
    """Return botocore's loader of service models; a loader caches, as reading them is slow."""
    from botocore.loaders import create_loader

    return create_loader()


def _read_streams(answer: dict[str, Any]) -> None:
    """Read what botocore leaves to be read later, so that a failure is one of the call."""
    for name, value in answer.items():
        if hasattr(value, "read"):
            answer[name] = io.BytesIO(value.read())


def within(seconds: float, call: Callable[[], T]) -> T | None:
    """Return the result of a call, or None if it takes longer; then it goes on by itself.

    Nothing else bounds the time for which a system looks up a name.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome.set_exception(error)

    if seconds <= 0:
        return None
    threading.Thread(target=run, name="control-plane", daemon=True).start()
    wait([outcome], seconds)
    return outcome.result() if outcome.done() else None


def _give_up(attempts: int, caught_exception: Any, **_: Any) -> None:
    """Raise the error of an endpoint that is silent after a few attempts.

    botocore would retry such a call as often as a throttled one.
    """
    from botocore.exceptions import (
        ConnectTimeoutError,
        EndpointConnectionError,
        ReadTimeoutError,
    )

    silent = (ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError)
    if isinstance(caught_exception, silent) and attempts >= SILENT_ATTEMPTS:
        raise caught_exception


def _api_name(service: str) -> str:
    """Return the name of a service for messages and botocore; two clients call Lambda."""
    return "lambda" if service == _INVOKE else service


def _has_no_address(error: Any) -> bool:
    """Return whether the name of a host could not be resolved."""
    cause = getattr(error, "kwargs", {}).get("error")
    return "NameResolution" in type(cause).__name__ or isinstance(cause, socket.gaierror)


def _refused(service: str, operation: str, error: Any) -> Exception:
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if any(word in code for word in _DENIED):
        return PermissionDenied(f"{service}:{operation} is not permitted ({code}): {message}")
    return ControlError(service, code, message)
