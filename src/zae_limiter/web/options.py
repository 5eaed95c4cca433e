"""Checks of the options, which find mistakes at the start, before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Literal

from zae_limiter.exceptions import ValidationError
from zae_limiter.forgotten import disarmed
from zae_limiter.headers import rate_limit_headers

if TYPE_CHECKING:
    from zae_limiter.web.rules import WebRule

ASYNC: Final = "RateLimiter"
SYNC: Final = "SyncRateLimiter"
LimiterKind = Literal["RateLimiter", "SyncRateLimiter", "any"]

# The options of acquire. Its entity, resource and amounts come from key, resource and cost.
ACQUIRE_OPTIONS: Final = (
    "limits",
    "use_stored_limits",
    "on_unavailable",
    "timeout",
    "on_error",
    "mode",
)
FUNCTIONS: Final = ("key", "resource", "cost", "cost_after", "skip")
RULE_OPTIONS: Final = (*FUNCTIONS, "style", "key_optional", "known_only", "details")
# Arguments of acquire, and the options from which they come.
_GIVEN_AS: Final = {"entity_id": "key", "consume": "cost"}


def check_limiter(limiter: Any, kind: LimiterKind) -> None:
    """Raise ValidationError unless this is a limiter of the kind that the adapter can call."""
    wanted = SYNC if kind == SYNC else ASYNC
    if isinstance(limiter, str):
        raise ValidationError("limiter", limiter, f"must be a {wanted}: write {wanted}(url=…)")
    is_available = getattr(limiter, "is_available", None)
    if isinstance(limiter, type) or not callable(is_available):
        is_class = isinstance(limiter, type)
        name = limiter.__name__ if is_class else type(limiter).__name__
        is_repository = not is_class and hasattr(limiter, "resolve_limits")
        made = f"{wanted}(repository)" if is_repository else f"{wanted}(…)"
        raise ValidationError("limiter", name, f"must be a {wanted}: write {made}")
    if kind not in ("any", ASYNC if iscoroutinefunction(is_available) else SYNC):
        why = "nothing is awaited here" if kind == SYNC else "it is awaited here"
        raise ValidationError("limiter", type(limiter).__name__, f"must be a {wanted}: {why}")


def check_options(
    rule: WebRule, limiter: Any, *, awaited: tuple[str, ...], kind: LimiterKind
) -> None:
    """Raise ValidationError for an option that is unknown, missing or wrong.

    Only the functions named in ``awaited`` may be async. The results of functions are not checked
    here, since that takes a request. ``kind`` is that of the limiter, if there is one.
    """
    if limiter is not None:
        check_limiter(limiter, kind)
    for name, value in rule.options.items():
        if name not in ACQUIRE_OPTIONS:
            advice = did_you_mean(name, (*RULE_OPTIONS, *ACQUIRE_OPTIONS))
            raise ValidationError(name, value, f"is not an option; {advice}")
    if (limiter is None) != (rule.key is None):
        missing = "limiter" if limiter is None else "key"
        raise ValidationError(missing, None, "is needed to limit requests")
    if rule.key is not None and not isinstance(rule.key, str) and not callable(rule.key):
        raise ValidationError("key", rule.key, "must be a function of the request, or a text")
    _check_functions(rule, awaited)
    if rule.style is not None:
        rate_limit_headers((), rule.style, now_ms=None)  # raises for an unknown style
    if limiter is not None:
        _check_acquire(rule, limiter)


def _check_functions(rule: WebRule, awaited: tuple[str, ...]) -> None:
    for name, function in (("cost_after", rule.cost_after), ("skip", rule.skip)):
        if function is not None and not callable(function):
            raise ValidationError(name, function, "must be a function")
    for name in FUNCTIONS:
        function = getattr(rule, name)
        if name not in awaited and _is_async(function):
            raise ValidationError(name, function, "must not be async: nothing awaits it here")


def _is_async(function: Any) -> bool:
    """Tell whether a function, or the call of an object, is async."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _check_acquire(rule: WebRule, limiter: Any) -> None:
    """Check the values that are not functions, by making an acquire that is never entered."""
    key, resource, cost = (
        stand_in if value is None or callable(value) else value
        for value, stand_in in (
            (rule.key, "any"),
            (rule.resource, "any"),
            (rule.cost, {"any": 1}),
        )
    )
    try:
        disarmed(limiter.acquire(key, resource, cost, **rule.options))
    except ValidationError as error:
        first, dot, rest = error.field.partition(".")
        if first not in _GIVEN_AS:
            raise
        name = f"{_GIVEN_AS[first]}{dot}{rest}"
        raise ValidationError(name, error.value, error.reason) from error


def check_settings(settings: Mapping[str, Any], known: tuple[str, ...]) -> str | None:
    """Return a message about a wrong name among Django's settings, or None."""
    for name in settings:
        if name in known:
            continue
        if name.lower() in ACQUIRE_OPTIONS:
            return f"put {name} into OPTIONS: {{{name.lower()!r}: {settings[name]!r}}}"
        return f"{name} is not a setting; {did_you_mean(name, known)}"
    return None


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """Return a hint with the known name that is most similar, or with all known names."""
    from difflib import get_close_matches  # imported here, since its import is slow

    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
