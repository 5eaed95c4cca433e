"""Store URLs, which name the engine and the place of its data."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import check_stack_name

OPTIONS = {
    "memory": frozenset[str](),
    "sqlite": frozenset({"synchronous", "wal_limit_mb"}),
    "dynamodb": frozenset({"region", "endpoint_url"}),
}
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# A user and a password before the last @, even in the URL of an endpoint, but not in a path.
_USER = re.compile(r"(^(?!.*://)|://|%3A%2F%2F)(?!/).+(@|%40)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"([?&])([^=&#]*)=([^&#]*)")
MASK = "***"
FORMS = "memory://, sqlite:///relative.db, sqlite:////absolute.db or dynamodb://STACK"


class StoreUrl(NamedTuple):
    """A parsed URL. ``place`` is the name of a memory store, a file path or a stack name."""

    engine: str
    place: str
    options: dict[str, str]


def parse_url(url: object) -> StoreUrl:
    """Parse a store URL; raise a ValidationError that shows the accepted forms."""
    if not isinstance(url, str):
        raise ValidationError("url", type(url).__name__, f"must be text: {FORMS}")
    shown = masked_url(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValidationError("url", shown, f"must be {FORMS}") from None
    if parts.scheme not in OPTIONS or "://" not in url:
        raise ValidationError("url", shown, f"must be {FORMS}")
    if parts.fragment or url.endswith("#"):
        raise ValidationError("url", shown, "contains '#'; write %23 for it in a path")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - OPTIONS[parts.scheme])
    if unknown:
        raise ValidationError("url", shown, f"has no option {masked_url(unknown[0])!r}")
    if "@" in parts.netloc:
        raise ValidationError("url", shown, f"must not contain a user; it must be {FORMS}")
    return StoreUrl(parts.scheme, _place(shown, parts.scheme, parts.netloc, parts.path), options)


def masked_url(url: str) -> str:
    """Return a URL for a message, without user, password and values of unknown options."""
    known = frozenset().union(*OPTIONS.values())

    def masked_option(option: re.Match[str]) -> str:
        mark, name, value = option.groups()
        return f"{mark}{name}={value if name in known else MASK}"

    return _OPTION.sub(masked_option, _USER.sub(rf"\1{MASK}\2", url))


def absolute_url(url: str) -> str:
    """Return the URL of the same store for a process that runs in another folder."""
    from pathlib import Path

    engine, place, _ = parse_url(url)
    if engine != "sqlite":
        return url
    _, mark, options = url.partition("?")
    return f"sqlite:///{quote(str(Path(place).absolute()))}{mark}{options}"


def check_region(region: object) -> str | None:
    """Accept None or the name of an AWS region, which becomes part of a host name."""
    if region is None or (isinstance(region, str) and _REGION.fullmatch(region)):
        return region
    raise ValidationError("region", region, "must be like us-east-1")


def _place(shown: str, engine: str, host: str, path: str) -> str:
    if engine == "sqlite":
        if host or len(path) < 2:
            raise ValidationError(
                "url", shown, "must be sqlite:///relative.db or sqlite:////abs.db"
            )
        file = unquote(path[1:])
        if file == ":memory:" or "\0" in file:
            raise ValidationError("url", shown, "does not name a file; use memory:// without one")
        return file
    if path not in ("", "/") or "@" in host:
        raise ValidationError("url", shown, f"must be {FORMS}")
    return check_stack_name(host, "url") if engine == "dynamodb" else host
