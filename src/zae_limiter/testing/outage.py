"""Outages on demand, for the store of a repository with any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._async.repository import Repository
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository

PORTS = ("buckets", "configs", "entities", "namespaces", "usage", "audit", "documents")
# Other calls of an engine (close, stats, capabilities) need no answer of the store, nor do these.
WITHOUT_ANSWER = ("close", "count")
ENGINE_CALLS = ("ping", "probe", "delete_all")
MESSAGE = "the store does not answer: an outage made by zae_limiter.testing.outage()"


@contextmanager
def outage(
    repository: Repository | SyncRepository | RateLimiter | SyncRateLimiter,
) -> Iterator[None]:
    """Fail every call to the store with RateLimiterUnavailable, until the block ends.

    Nothing is written during the outage. After it, the next call reaches the store again. The
    outage affects the given repository (or the one of a limiter) and all that share its connection:
    its other namespaces, and their limiters. Other repositories are not affected, even if they were
    opened with the same URL.

    >>> with outage(repository):
    ...     response = client.get("/")  # what does my service do now?
    """
    opened = getattr(repository, "repository", repository)  # a limiter has a repository
    context = getattr(opened, "_context", None)
    if context is None:
        raise ValidationError(
            "repository", repository, "must be an open repository, or a limiter that has one"
        )
    fail = _fail_async if hasattr(type(opened), "__aenter__") else _fail
    with ExitStack() as restore:
        if "ping" not in vars(context.engine):  # this is not inside of another outage
            restore.callback(context.breaker.answered)
        for name in PORTS:
            port = getattr(context.engine, name)
            for method in dir(type(port)):
                is_call = not method.startswith("_") and method not in WITHOUT_ANSWER
                if is_call and callable(getattr(type(port), method)):
                    _replace_method(port, method, fail, restore)
        for method in ENGINE_CALLS:
            _replace_method(context.engine, method, fail, restore)
        yield


def _replace_method(
    target: object, name: str, fail: Callable[..., Any], restore: ExitStack
) -> None:
    """Replace a method of one object, which several repositories may share."""
    attributes = vars(target)
    if name in attributes:  # an outer outage has replaced the method
        restore.callback(attributes.__setitem__, name, attributes[name])
    else:
        restore.callback(attributes.pop, name)
    attributes[name] = fail


def _fail(*args: object, **kwargs: object) -> None:
    raise RateLimiterUnavailable(MESSAGE)


async def _fail_async(*args: object, **kwargs: object) -> None:
    raise RateLimiterUnavailable(MESSAGE)
