"""Settings of the page, checked before the server starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zae_limiter.exceptions import ValidationError
from zae_limiter_ops.addresses import LOOPBACK, is_loopback

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """How the page is served.

    ``public_hosts`` are the names under which browsers reach it, besides its own address.
    ``principal_header`` is the header in which a proxy names the user.
    """

    host: str = LOOPBACK
    port: int = 8787
    allow_edit: bool = False
    behind_proxy: bool = False
    certificate: Path | None = None
    key: Path | None = None
    public_hosts: tuple[str, ...] = ()
    principal_header: str | None = None
    manifest: Path | None = None

    def check(self) -> None:
        """Raise ValidationError if a name is wrong, or the settings would leave the page open."""
        for name in self.public_hosts:
            if not _HOST.fullmatch(name):
                raise ValidationError(
                    "public_hosts", name, "must be a host name, such as limits.example.com"
                )
        if self.principal_header is not None and not _HEADER.fullmatch(self.principal_header):
            raise ValidationError(
                "principal_header", self.principal_header, "must be the name of a header"
            )
        if not is_loopback(self.host) and not (self.certificate or self.behind_proxy):
            raise ValidationError(
                "host",
                self.host,
                "is reachable from other machines: add --certificate FILE for TLS, or "
                "--behind-proxy if a proxy in front of it speaks TLS",
            )
        if self.behind_proxy and not self.public_hosts:
            raise ValidationError(
                "public_hosts",
                "",
                "must name the host under which browsers reach the proxy: --public-host NAME",
            )
        if self.principal_header is not None and not self.behind_proxy:
            raise ValidationError(
                "principal_header",
                self.principal_header,
                "is for --behind-proxy: without a proxy, any client could name any user",
            )

    @property
    def is_secure(self) -> bool:
        """Whether browsers speak TLS, to the page itself or to a proxy before it."""
        return self.certificate is not None or self.behind_proxy

    @property
    def hosts(self) -> frozenset[str]:
        """The values of the Host header that are accepted."""
        names = {self.host, *self.public_hosts}
        if is_loopback(self.host):
            names |= {LOOPBACK, "localhost", "::1"}
        bracketed = {f"[{name}]" if ":" in name and "[" not in name else name for name in names}
        hosts = {f"{name}:{self.port}" for name in bracketed}
        # A proxy is reached at the port of its scheme, or at one that the public name contains.
        return frozenset(name.lower() for name in hosts | set(self.public_hosts))

    @property
    def origins(self) -> frozenset[str]:
        """The values of the Origin header that are accepted."""
        scheme = "https" if self.is_secure else "http"
        return frozenset(f"{scheme}://{host}" for host in self.hosts)

    @property
    def address(self) -> str:
        """The address that a browser on this machine opens."""
        scheme = "https" if self.certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/"
