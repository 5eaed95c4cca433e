"""The gRPC server of Envoy's rate limit protocol."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import grpc
from envoy.service.ratelimit.v3 import rls_pb2_grpc

from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter_service.access import LEASING, ServiceCaller
from zae_limiter_service.envoy.decisions import decide
from zae_limiter_service.envoy.messages import ask_of, entries_of, response_of
from zae_limiter_service.envoy.rules import NoRule, Rules, namespace_of, read_rules, target_of
from zae_limiter_service.files import WatchedFile

if TYPE_CHECKING:
    from zae_limiter_service.access import ServiceAccess
    from zae_limiter_service.access_log import AccessLog
    from zae_limiter_service.counters import ServiceCounters
    from zae_limiter_service.settings import ServiceSettings
    from zae_limiter_service.stores import NamespaceStores

MAX_MESSAGE = 262_144  # bytes
MAX_DESCRIPTORS = 64
_logger = logging.getLogger(__name__)


class EnvoyServer(rls_pb2_grpc.RateLimitServiceServicer):  # type: ignore[misc]
    """Answers ShouldRateLimit. An error is an error of gRPC, so Envoy's failure mode decides."""

    def __init__(
        self,
        settings: ServiceSettings,
        stores: NamespaceStores,
        access: ServiceAccess,
        counters: ServiceCounters,
        log: AccessLog | None,
    ) -> None:
        self._settings, self._stores, self._access = settings, stores, access
        self._counters, self._log = counters, log
        self.rules_file: WatchedFile[Rules] | None = None
        if settings.rules is not None:
            self.rules_file = WatchedFile(settings.rules, read_rules)
        self._server: Any = None

    async def start(self) -> None:
        """Listen on the port of the settings."""
        options = [
            ("grpc.so_reuseport", 1),  # with the other workers, and with who keeps the port
            ("grpc.max_receive_message_length", MAX_MESSAGE),
        ]
        self._server = grpc.aio.server(
            options=options, maximum_concurrent_rpcs=self._settings.max_requests
        )
        rls_pb2_grpc.add_RateLimitServiceServicer_to_server(self, self._server)
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        address = f"{host}:{self._settings.grpc_port}"
        credentials = server_credentials(self._settings)
        if credentials is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, credentials)
        await self._server.start()

    async def stop(self, within_s: float) -> None:
        """Finish the calls that run, for a bounded time."""
        if self._server is not None:
            await self._server.stop(within_s)

    async def ShouldRateLimit(self, request: Any, context: Any) -> Any:  # noqa: N802 - its name
        """Decide about one request."""
        began, seen = time.perf_counter(), _SeenCall()
        try:
            caller = self._caller(context)
            seen.caller = caller.name
            response = await self._decide(request, caller, seen)
        except Exception as error:
            code, message = self._failure(error)
            self._note(request, seen, code, time.perf_counter() - began)
            await context.abort(code, message)
            raise  # not reached, since abort raises
        self._note(request, seen, grpc.StatusCode.OK, time.perf_counter() - began)
        return response

    def _note(self, request: Any, seen: _SeenCall, code: Any, took_s: float) -> None:
        """Count a decision, and log the request."""
        if seen.result is not None:
            self._count(seen.result)
        if self._log is not None:
            self._log.line(
                transport="grpc",
                method="ShouldRateLimit",
                status=code.name,
                result=seen.result,
                ms=round(took_s * 1000, 3),
                caller=seen.caller,
                namespace=seen.namespace,
                domain=request.domain[:100],
            )

    async def _decide(self, request: Any, caller: ServiceCaller, seen: _SeenCall) -> Any:
        rules = Rules() if self.rules_file is None else self.rules_file.current()
        namespace = namespace_of(rules, request.domain, self._stores.namespace)
        if not caller.may_enter(namespace):
            message = "this token does not permit the namespace of the domain"
            raise _Refused(grpc.StatusCode.PERMISSION_DENIED, "namespace", message)
        seen.namespace = namespace
        if not 0 < len(request.descriptors) <= MAX_DESCRIPTORS:
            raise ValidationError(
                "descriptors", len(request.descriptors), f"must be 1 to {MAX_DESCRIPTORS}"
            )
        asks = []
        for descriptor in request.descriptors:
            target = target_of(rules, request.domain, entries_of(descriptor))
            ask = None if target is None else ask_of(target, descriptor, request.hits_addend)
            asks.append(ask)
        limiter = await self._stores.limiter(namespace)
        clock = self._stores.root.charging.clock
        decision = await decide(limiter, asks, clock)
        seen.result = "granted" if decision.is_admitted else "rejected"
        return response_of(decision, asks, clock())

    def _failure(self, error: Exception) -> tuple[Any, str]:
        """Return the status and the message of gRPC for an error, and count it."""
        match error:
            case _Refused():
                self._counters.add("refused_total", (("reason", error.reason),))
                return error.code, str(error)
            case NoRule() | ValidationError():
                self._count("error")
                return grpc.StatusCode.INVALID_ARGUMENT, str(error)
            case ZAELimiterError():
                self._count("error")
                return grpc.StatusCode.UNAVAILABLE, "limits cannot be checked at the moment"
            case _:
                _logger.error("a request of Envoy failed", exc_info=error)
                self._count("error")
                return grpc.StatusCode.INTERNAL, "the service has a defect; its log tells more"

    def _caller(self, context: Any) -> ServiceCaller:
        """Return who calls; raise if nobody is known, or its role may not acquire."""
        metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        authorization = metadata.get("authorization")
        names = context.auth_context().get("x509_common_name", ())
        name = names[0].decode("utf-8", "replace") if names else None
        caller = self._access.caller(
            authorization if isinstance(authorization, str) else None, name
        )
        if caller is None:
            raise _Refused(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", "a token is needed")
        if caller.role not in LEASING:
            raise _Refused(grpc.StatusCode.PERMISSION_DENIED, "role", "the role does not permit it")
        return caller

    def _count(self, result: str) -> None:
        self._counters.add("decisions_total", (("transport", "grpc"), ("result", result)))


class _SeenCall:
    """What is known of a request when it is logged."""

    __slots__ = ("caller", "namespace", "result")

    def __init__(self) -> None:
        self.caller: str | None = None
        self.namespace: str | None = None
        self.result: str | None = None


class _Refused(Exception):
    """A caller is unknown, or may not do this."""

    def __init__(self, code: Any, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


def server_credentials(settings: ServiceSettings) -> Any:
    """Return the credentials for TLS; None without a certificate."""
    if settings.certificate is None:
        return None
    chain = settings.certificate.read_bytes()
    key = (settings.key or settings.certificate).read_bytes()
    if settings.client_ca is None:
        return grpc.ssl_server_credentials([(key, chain)])
    # Unlike HTTP, gRPC cannot verify a certificate that is optional: those with a token need one.
    return grpc.ssl_server_credentials(
        [(key, chain)], settings.client_ca.read_bytes(), require_client_auth=True
    )
