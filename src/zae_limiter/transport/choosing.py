"""Which way requests take to an endpoint: our own wire, or botocore's HTTP stack."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.sources import Sources
from zae_limiter.transport.wire import Endpoint


@dataclass(frozen=True)
class Route:
    """``transport`` is "lean" or "sdk"; the rest is what botocore's stack has to know.

    ``proxy`` may contain a password; ``via`` is what may be shown of it.
    """

    transport: str
    why: str
    proxy: str | None = field(default=None, repr=False)
    via: str | None = None
    verify: str | bool = True
    proxy_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


def choose(transport: str, endpoint: Endpoint, sources: Sources) -> Route:
    """ "auto" takes botocore's stack where ours does not do.

    A server on this machine is not asked through a proxy unless "sdk" is asked for.
    """
    if transport == "lean":
        return Route("lean", "it was asked for")
    auto = transport == "auto"
    proxy = None if auto and endpoint.is_local else _proxy_for(endpoint)
    why = _what_lean_lacks(endpoint, proxy, sources) if auto else "it was asked for"
    if why is None:
        return Route("lean", "nothing else is needed")
    return Route(
        "sdk",
        why,
        proxy=proxy,
        via=_shown(proxy) if proxy else None,
        verify=_readable(sources.ca_bundle()) if endpoint.scheme == "https" else True,
        proxy_settings=sources.proxy_settings() if proxy else {},
    )


def _what_lean_lacks(endpoint: Endpoint, proxy: str | None, sources: Sources) -> str | None:
    if proxy is not None:
        return f"the proxy {_shown(proxy)} applies"
    if endpoint.scheme != "https":
        return None
    if endpoint.host.endswith(".") or "%" in endpoint.host:
        return "certificates do not contain such a name"
    if sources.profile_ca_bundle() is not None:
        return "the profile sets ca_bundle"
    return None


def _proxy_for(endpoint: Endpoint) -> str | None:
    """By botocore's rules; it is not imported where it is plain that there is none."""
    if not _may_have_proxies():
        return None
    from botocore.httpsession import ProxyConfiguration
    from botocore.utils import get_environ_proxies

    configuration = ProxyConfiguration(get_environ_proxies(endpoint.url))
    proxy: str | None = configuration.proxy_url_for(endpoint.url)
    if not proxy:
        return None
    try:
        configuration.proxy_headers_for(proxy)
        parts = urlsplit(proxy)
        # botocore puts http:// before what it does not know.
        usable = bool(parts.hostname) and parts.port != 0 and proxy.count("://") == 1
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError(
            f"{endpoint.scheme.upper()}_PROXY",
            "…",  # there may be a password in it
            "must be like http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, in ASCII; SOCKS is "
            f"not supported; NO_PROXY={endpoint.host} goes without it",
        )
    return proxy


def _may_have_proxies() -> bool:
    """Elsewhere than on Linux the system has settings of its own."""
    if not sys.platform.startswith("linux"):
        return True
    return any(name.lower().endswith("_proxy") and value for name, value in os.environ.items())


def _shown(proxy: str) -> str:
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _readable(bundle: str | None) -> str | bool:
    if bundle is None:
        return True
    try:
        with Path(bundle).open("rb"):
            return bundle
    except OSError as error:
        raise ValidationError(
            "ca_bundle",
            bundle,
            f"cannot be read ({error.strerror}); check AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE "
            "or ca_bundle of the profile",
        ) from error
