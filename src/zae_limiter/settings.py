"""The settings with which a repository is opened: each with its default and its check."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from zae_limiter.clock import check_clock
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import check_positive
from zae_limiter.naming import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zae_limiter.clock import Clock
    from zae_limiter.models.stack import StackOptions

MAX_SECONDS = 10**9  # 30 years; a larger number is probably in the wrong unit
MAX_SHARDS = 64  # all shards of a bucket fit into one transaction of 100 actions
MAX_TTL_MULTIPLIER = 10**6  # larger ones would mean never, which is 0
WINDOWS = ("hourly", "daily", "monthly")  # the same as in models.usage, which is imported late
# These are literals, so that a typo is a type error. The functions check other text.
Provision = Literal["stack", "table", "never"]
ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]


class Settings(NamedTuple):
    """All settings of a builder, ``Repository.open`` and a limiter that opens its own store.

    Each engine reads those that it needs. The methods of the builder say what each one means.
    """

    namespace: str | None = None  # None: the environment or the default decides, as for the next
    stack: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    url: str | None = None
    config_cache_ttl: float = 60
    auto_update: bool = True
    bucket_ttl_multiplier: int = 7
    on_unavailable: OnUnavailable | None = None
    usage_retention_days: int | None = None  # None is the engine's default
    audit_retention_days: int = 90
    snapshot_windows: tuple[str, ...] = WINDOWS
    provision: Provision = "stack"
    stack_options: StackOptions | None = None  # of a stack that is missing and deployed
    request_timeout: float = 2.0
    rejection_cache_ttl: float = 1.0
    max_shards: int = 32  # 32,000 writes a second to one bucket
    clock: Clock | None = None  # None is the engine's own
    register: bool = False  # creates a missing namespace
    parallel_mode: ParallelMode = "auto"

    def given(self, **options: Any) -> Settings:
        """Return these settings with others; raise ValidationError for a wrong value."""
        checked = {
            name: CHECKS[name](value, name) if name in CHECKS else value
            for name, value in options.items()
        }
        return self._replace(**checked)


def named_namespace(name: str | None) -> str:
    """Return the namespace that an option or the environment names, or the default."""
    return name or os.environ.get("ZAEL_NAMESPACE") or DEFAULT_NAMESPACE


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


def check_provision(value: object, field: str = "provision") -> Provision:
    """Check the setting that says what is created if the DynamoDB table is missing."""
    return cast(Provision, _check_choice(value, field, get_args(Provision)))


def check_parallel_mode(value: object, field: str = "parallel_mode") -> ParallelMode:
    """Check the setting that says how independent calls of the sync tree run."""
    return cast(ParallelMode, _check_choice(value, field, get_args(ParallelMode)))


def _check_choice(value: object, field: str, choices: tuple[str, ...]) -> object:
    if value not in choices:
        raise ValidationError(field, value, f"must be one of {', '.join(choices)}")
    return value


def _check_max_shards(value: object, field: str) -> int:
    """Return the largest number of items that one bucket may be split into."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SHARDS:
        raise ValidationError(field, value, f"must be from 1 to {MAX_SHARDS}")
    return value


def _check_retention_days(value: object, field: str) -> int:
    """Return the number of days for which usage is kept; 0 keeps none."""
    from zae_limiter.models.stack import MAX_RETENTION_DAYS  # few programs set it

    if type(value) is not int or not 0 <= value <= MAX_RETENTION_DAYS:
        raise ValidationError(
            field, value, f"must be a whole number from 0 to {MAX_RETENTION_DAYS}"
        )
    return value


def check_windows(value: str | Iterable[str], field: str = "snapshot_windows") -> tuple[str, ...]:
    """Return the lengths of usage windows, shortest first, from names or a text with commas."""
    names = value.split(",") if isinstance(value, str) else list(value)
    given = {name.strip() if isinstance(name, str) else name for name in names}
    if not given or not given <= set(WINDOWS):
        raise ValidationError(field, value, f"must be among {', '.join(WINDOWS)}")
    return tuple(window for window in WINDOWS if window in given)


def check_ttl_multiplier(value: object, field: str = "bucket_ttl_multiplier") -> int:
    """Return the TTL of a bucket, in multiples of its time to fill; 0 means never."""
    if type(value) is not int or not 0 <= value <= MAX_TTL_MULTIPLIER:
        raise ValidationError(
            field, value, f"must be a whole number from 0 to {MAX_TTL_MULTIPLIER}"
        )
    return value


def check_policy(value: object, field: str = "on_unavailable") -> OnUnavailable | None:
    """Return an outage policy; None stands for that of the store."""
    return None if value is None else OnUnavailable.parse(value, field)


def _check_clock(value: object, _field: str) -> Clock | None:
    return None if value is None else check_clock(value)


CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "config_cache_ttl": check_seconds,
    "bucket_ttl_multiplier": check_ttl_multiplier,
    "on_unavailable": check_policy,
    "usage_retention_days": _check_retention_days,
    "audit_retention_days": check_positive,
    "snapshot_windows": check_windows,
    "provision": check_provision,
    "request_timeout": check_timeout,
    "rejection_cache_ttl": check_seconds,
    "max_shards": _check_max_shards,
    "clock": _check_clock,
    "parallel_mode": check_parallel_mode,
}
