"""Calls to CloudFormation, Lambda and other services of the control plane, over botocore.

DynamoDB itself goes over our own wire; these calls are few, and their protocols are many.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from zae_limiter.exceptions import InfrastructureError, PermissionDenied, ValidationError
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter.transport.messages import parse_endpoint

CONNECT_S = 3.0
CONNECT_ATTEMPTS = 2  # a host that cannot be reached twice is in the wrong region, or the network
READ_S = 60.0  # of one answer; UpdateFunctionCode carries the package
ATTEMPTS = 6  # the control plane throttles; botocore backs off between attempts
INVOKE_S = 910.0  # of one answer of a function, which may take 900
MAX_PAYLOAD = 6_000_000  # bytes that Lambda takes for a function that is waited for
LOCAL_REGION = "us-east-1"
# Domains of AWS's own endpoints, in all partitions; those of VPC endpoints end alike.
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws", ".ic.gov")
ANY_STACK = "zae-limiter"  # whose absence is an answer, too
_INVOKE = "lambda, invoked"  # a client of its own, which waits longer
_DENIED = ("AccessDenied", "Unauthorized", "InvalidClientTokenId", "SignatureDoesNotMatch")


class ControlError(InfrastructureError):
    """The control plane has refused a call; ``code`` is its name for the reason."""

    def __init__(self, service: str, code: str, reason: str) -> None:
        self.service = service
        self.code = code
        self.reason = reason
        super().__init__(f"{service} refused the call ({code}): {reason}")

    @property
    def is_throttling(self) -> bool:
        return "Throttl" in self.code or self.code == "RequestLimitExceeded"


class Control:
    """A control plane of one region or endpoint. Calls block; any thread may make them."""

    def __init__(self, region: str | None = None, endpoint_url: str | None = None) -> None:
        # botocore itself does not read AWS_REGION, which the data plane reads first.
        self.region = region or os.environ.get("AWS_REGION") or None
        self.endpoint_url = endpoint_url
        self._clients: dict[str, Any] = {}
        self._session: Any = None
        self._unknown_region: InfrastructureError | None = None
        self._serves_stacks: bool | None = None
        self._lock = threading.Lock()

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation by botocore's method name; raise our own errors."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._unknown_region is not None:  # its other services have no host, either
            raise self._unknown_region
        try:
            answer: dict[str, Any] = getattr(self._client(service), operation)(**parameters)
        except ClientError as error:
            raise _refused(service, operation, error) from error
        except BotoCoreError as error:
            raise self._failed(service, error) from error
        except Exception as error:  # such as botocore's error for an answer that it cannot parse
            raise InfrastructureError(
                f"the answer of {service} to {operation} cannot be read ({type(error).__name__}); "
                "check the endpoint and any proxy before it"
            ) from error
        return answer

    def serves_stacks(self) -> bool:
        """Return whether stacks exist where the table is; ask the endpoint once, if need be."""
        if self._serves_stacks is None:
            self._serves_stacks = self._settings_say()
        if self._serves_stacks is None:
            self._serves_stacks = self._answers()
        return self._serves_stacks

    def _answers(self) -> bool:
        """Ask for a stack; a server without CloudFormation refuses in any way of its own."""
        try:
            self.call("cloudformation", "describe_stacks", StackName=ANY_STACK)
        except PermissionDenied:
            return True
        except ControlError as error:
            return error.is_throttling or "does not exist" in error.reason
        except InfrastructureError:
            return False
        return True

    def _settings_say(self) -> bool | None:
        """Tell whether CloudFormation is where the table is, as far as the settings say.

        True: the table is on AWS. False: DynamoDB has an endpoint of its own, such as a local
        server, and CloudFormation has none. None: the endpoint must be asked.
        """
        config = AwsConfig()
        url = self.endpoint_url or config.configured_url("dynamodb")
        if url is None or parse_endpoint(url).host.endswith(AWS_DOMAINS):
            return True
        if self.endpoint_url is None and config.configured_url("cloudformation") is None:
            return False
        return None

    def pages(self, service: str, operation: str, **parameters: Any) -> list[dict[str, Any]]:
        """Call an operation until there is no further page."""
        pages: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while not pages or token:
            answer = self.call(service, operation, **parameters, **token)
            pages.append(answer)
            following = answer.get("NextToken")
            token = {"NextToken": following} if following else {}
        return pages

    def invoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function, once, and return the document that it answers with."""
        body = json.dumps(payload).encode()
        if len(body) > MAX_PAYLOAD:
            raise ControlError(
                "lambda", "RequestTooLarge", f"{function} takes at most {MAX_PAYLOAD} bytes"
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

        if self._session is None:
            self._session = Session()
            self._session.register_component("data_loader", _service_models())
        session = self._session
        options: dict[str, Any] = {"region_name": self.region}
        url = self.endpoint_url or AwsConfig().configured_url(service)
        if url and parse_endpoint(url).is_local:
            options["region_name"] = (
                self.region or session.get_config_variable("region") or LOCAL_REGION
            )
            if session.get_credentials() is None:  # a local server does not check
                options |= {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        is_invoking = service == _INVOKE  # which is not repeated if the answer is late
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=INVOKE_S if is_invoking else READ_S,
            retries={"mode": "standard", "total_max_attempts": 1 if is_invoking else ATTEMPTS},
        )
        client = session.create_client(
            "lambda" if is_invoking else service,
            endpoint_url=self.endpoint_url,
            config=config,
            **options,
        )
        client.meta.events.register("needs-retry", _give_up_connecting)
        return client

    def _failed(self, service: str, error: Exception) -> Exception:
        """Translate an error that botocore raises without an answer."""
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
        where = self.endpoint_url or f"region {self.region or 'of the AWS configuration'}"
        if self.endpoint_url is None and _has_no_address(error):
            self._unknown_region = InfrastructureError(
                f"{service} has no host in {where}{self._similar_region()}; check the region and "
                "the network"
            )
            return self._unknown_region
        return InfrastructureError(
            f"{service} cannot be reached at {where} ({kind}); check the region, the endpoint "
            "and the network"
        )

    def _similar_region(self) -> str:
        """Return a question about the region that may have been meant, or nothing."""
        region = self.region or self._session.get_config_variable("region")
        known = self._session.get_available_regions("dynamodb")
        similar = [] if region in known else get_close_matches(str(region), known, n=2, cutoff=0.8)
        return f" (did you mean {' or '.join(sorted(similar))}?)" if similar else ""


class AControl(Control):
    """The same for an event loop: each call runs in a worker thread."""

    async def acall(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.call, service, operation, **parameters)

    async def apages(self, service: str, operation: str, **parameters: Any) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.pages, service, operation, **parameters)

    async def aserves_stacks(self) -> bool:
        return await asyncio.to_thread(self.serves_stacks)

    async def ainvoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self.invoke, function, payload)


@functools.cache
def _service_models() -> Any:
    """Return botocore's descriptions of services, which take longer to read than most calls."""
    from botocore.loaders import create_loader

    return create_loader()


def _give_up_connecting(attempts: int, caught_exception: Any, **_: Any) -> None:
    """Raise what botocore would try again: it retries a connection as often as a throttled call."""
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

    is_connecting = isinstance(caught_exception, ConnectTimeoutError | EndpointConnectionError)
    if is_connecting and attempts >= CONNECT_ATTEMPTS:
        raise caught_exception


def _has_no_address(error: Any) -> bool:
    """Whether the name of a host could not be resolved."""
    cause = getattr(error, "kwargs", {}).get("error")
    return "NameResolution" in type(cause).__name__ or isinstance(cause, socket.gaierror)


def _refused(service: str, operation: str, error: Any) -> Exception:
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if any(word in code for word in _DENIED):
        return PermissionDenied(f"{service}:{operation} is not permitted ({code}): {message}")
    return ControlError(service, code, message)
