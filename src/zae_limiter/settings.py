"""Settings with which a repository is opened, and the checks of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.clock import Clock
    from zae_limiter.models.config import OnUnavailable

MAX_SECONDS = 10**9  # 30 years: a larger number is a mistake of units
MAX_SHARDS = 64  # all shards of a bucket fit into one transaction of 100 actions
MAX_TTL_MULTIPLIER = 10**6  # more is as good as never, which is spelled 0
# Literals, so that a typo is a type error; values from elsewhere are checked when they are set.
Provision = Literal["stack", "table", "never"]
ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]


class Settings(NamedTuple):
    """Everything that a builder can set. Engines read what concerns them.

    ``url``, ``stack`` and ``namespace`` are None where the environment or the default decides;
    ``clock`` is None for the engine's own. ``register`` creates a missing namespace.
    """

    namespace: str | None = None
    stack: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    url: str | None = None
    config_cache_ttl: float = 60
    auto_update: bool = True
    bucket_ttl_multiplier: int = 7
    on_unavailable: OnUnavailable | None = None
    usage_retention_days: int | None = None  # the engine's default
    audit_retention_days: int = 90
    provision: Provision = "stack"
    request_timeout: float = 2.0
    rejection_cache_ttl: float = 1.0
    max_shards: int = 32  # 32,000 writes a second to one bucket
    clock: Clock | None = None
    register: bool = False
    parallel_mode: ParallelMode = "auto"


def check_seconds(value: object, field: str) -> float:
    """Return a duration of at least zero."""
    if type(value) not in (int, float) or not 0 <= value < MAX_SECONDS:  # type: ignore[operator]
        raise ValidationError(field, value, "must be a number of seconds, at least 0")
    return value  # type: ignore[return-value]


def check_timeout(value: object, field: str) -> float:
    """Return a duration above zero."""
    seconds = check_seconds(value, field)
    if not seconds:
        raise ValidationError(field, value, "must be greater than zero")
    return seconds


def check_provision(value: Provision) -> Provision:
    """Return what is created if the DynamoDB table is missing."""
    choices = get_args(Provision)
    if value not in choices:
        raise ValidationError("provision", value, f"must be one of {', '.join(choices)}")
    return value


def check_max_shards(value: object) -> int:
    """Return the largest number of items that one bucket may be split into."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SHARDS:
        raise ValidationError("max_shards", value, f"must be from 1 to {MAX_SHARDS}")
    return value


def check_ttl_multiplier(value: object) -> int:
    """Return after how many times its time to fill a bucket expires; 0 is never."""
    if type(value) is not int or not 0 <= value <= MAX_TTL_MULTIPLIER:
        raise ValidationError(
            "bucket_ttl_multiplier", value, f"must be a whole number from 0 to {MAX_TTL_MULTIPLIER}"
        )
    return value
