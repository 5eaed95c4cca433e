"""Store URLs: which engine, and where its data is."""

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
_PASSWORD = re.compile(r"(//[^/?#@:]*):.*@")  # of the URL itself, or of one in its options
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
FORMS = "memory://, sqlite:///relative.db, sqlite:////absolute.db or dynamodb://STACK"


class StoreUrl(NamedTuple):
    """A parsed URL. ``place`` is the name of a memory store, a file path or a stack name."""

    engine: str
    place: str
    options: dict[str, str]


def parse_url(url: object) -> StoreUrl:
    """Parse a store URL; the ValidationError for a bad one shows the accepted forms."""
    if not isinstance(url, str):
        raise ValidationError("url", url, f"must be text: {FORMS}")
    shown = without_password(url)
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
        raise ValidationError("url", shown, f"has no option {unknown[0]!r}")
    if "@" in parts.netloc:
        raise ValidationError("url", shown, f"must not contain a user; it must be {FORMS}")
    return StoreUrl(parts.scheme, _place(shown, parts.scheme, parts.netloc, parts.path), options)


def absolute_url(url: str) -> str:
    """Return the URL of the same store for a process that runs in another folder."""
    from pathlib import Path

    engine, place, _ = parse_url(url)
    if engine != "sqlite":
        return url
    _, mark, options = url.partition("?")
    return f"sqlite:///{quote(str(Path(place).absolute()))}{mark}{options}"


def without_password(url: str) -> str:
    """Return the URL as errors and logs show it."""
    return _PASSWORD.sub(r"\1:***@", unquote(url)) if "@" in unquote(url) else url


def check_region(region: object) -> str | None:
    """Accept None or the name of an AWS region, which becomes part of a host name."""
    if region is None or (isinstance(region, str) and _REGION.fullmatch(region)):
        return region
    raise ValidationError("region", region, "must be like us-east-1")


def _place(url: str, engine: str, host: str, path: str) -> str:
    if engine == "sqlite":
        if host or len(path) < 2:
            raise ValidationError("url", url, "must be sqlite:///relative.db or sqlite:////abs.db")
        file = unquote(path[1:])
        if file == ":memory:" or "\0" in file:
            raise ValidationError("url", url, "does not name a file; use memory:// without one")
        return file
    if path not in ("", "/"):
        raise ValidationError("url", url, f"must be {FORMS}")
    return check_stack_name(host, "url") if engine == "dynamodb" else host
