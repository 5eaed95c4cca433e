"""Settings of the service, checked before a socket is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.store_url import parse_url
from zae_limiter_ops.addresses import LOOPBACK, is_loopback

DEFAULT_PORTS = {"http": 80, "https": 443}  # of URLs
DEFAULT_TTL_S = 600.0
MAX_TTL_S = 86_400.0
MAX_WAIT_S = 600.0
MAX_ADVERTISED = 200  # characters: every id of a lease contains the URL


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """How the service is served, and its bounds. Bounds are those of one worker."""

    host: str = LOOPBACK
    port: int = 8080
    grpc_port: int | None = None
    tokens: Path | None = None
    no_auth: bool = False
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    rules: Path | None = None
    workers: int = 1
    advertise: str | None = None
    dashboard: bool = False
    access_log: str | None = None
    telemetry: bool = False
    max_leases: int = 10_000
    max_requests: int = 1_000
    drain_s: float = 10.0
    url: str | None = None
    namespace: str | None = None

    def check(self) -> None:
        """Raise ValidationError if the settings contradict each other or leave the service open."""
        self._check_access()
        self._check_workers()
        if self.key is not None and self.certificate is None:
            raise ValidationError("key", str(self.key), "belongs to a certificate: --certificate")
        if self.rules is not None and self.grpc_port is None:
            raise ValidationError(
                "rules", str(self.rules), "are for Envoy's protocol: add --grpc-port PORT"
            )
        if self.advertise is not None:
            check_advertised(self.advertise)

    def _check_access(self) -> None:
        if self.client_ca is not None and self.certificate is None:
            raise ValidationError(
                "client_ca", str(self.client_ca), "needs TLS: add --certificate FILE"
            )
        is_guarded = self.tokens is not None or self.client_ca is not None
        if self.no_auth and is_guarded:
            raise ValidationError(
                "no_auth", True, "contradicts --tokens and --client-ca: leave one of them out"
            )
        if self.no_auth and not is_loopback(self.host):
            raise ValidationError(
                "no_auth",
                True,
                f"is for this machine alone, and --host {self.host} is not loopback",
            )
        if not is_guarded and not self.no_auth:
            raise ValidationError(
                "tokens",
                None,
                "are needed, on this machine as well: --tokens FILE, --client-ca FILE, or "
                "--no-auth for a service that only this machine can reach",
            )
        if not is_loopback(self.host) and self.certificate is None:
            raise ValidationError(
                "host", self.host, "is reachable from other machines: add --certificate FILE"
            )

    def _check_workers(self) -> None:
        if self.workers == 1:
            return
        if self.url is not None and parse_url(self.url).engine == "memory":
            raise ValidationError(
                "workers",
                self.workers,
                "would each have a memory of their own: use one worker, or a store that processes "
                "share (sqlite:// or dynamodb://)",
            )
        if self.dashboard:
            raise ValidationError(
                "workers",
                self.workers,
                "do not share the sessions of the page: use one worker, or run "
                "zae-limiter dashboard beside the service",
            )

    @property
    def scheme(self) -> str:
        return "https" if self.certificate is not None else "http"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)

    @property
    def hosts(self) -> frozenset[str]:
        """The values of the Host header that a service on loopback accepts."""
        names = {self.host, LOOPBACK, "localhost", "::1"}
        bracketed = {f"[{name}]" if ":" in name else name for name in names}
        hosts = {f"{name}:{self.port}" for name in bracketed}
        if self.port == DEFAULT_PORTS[self.scheme]:  # clients leave out a default port
            hosts |= bracketed
        if self.advertise is not None:
            hosts.add(urlsplit(self.advertise).netloc)
        return frozenset(host.lower() for host in hosts)

    @property
    def address(self) -> str:
        """The URL at which the service listens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def check_advertised(url: str) -> str:
    """Accept an http or https URL without a path."""
    parts = urlsplit(url)
    is_plain = parts.scheme in ("http", "https") and parts.netloc and not parts.path.strip("/")
    if not is_plain or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValidationError("advertise", url, "must be a URL such as https://10.0.0.5:8080")
    if len(url) > MAX_ADVERTISED or not url.isascii() or not url.isprintable():
        raise ValidationError("advertise", url, f"must have at most {MAX_ADVERTISED} characters")
    return url
