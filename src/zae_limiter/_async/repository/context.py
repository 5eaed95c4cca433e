"""What a repository is made of; scoped repositories share it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from zae_limiter._async.config_cache import ConfigCache
from zae_limiter._async.ports import Engine
from zae_limiter.admission.in_force import InForce
from zae_limiter.clock import Clock
from zae_limiter.concurrency.counter import Counter
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable

MAX_MULTIPLIER = 10**6


@dataclass(frozen=True)
class Context:
    """An open engine, one namespace of it, and the settings of this repository."""

    engine: Engine
    cache: ConfigCache
    clock: Clock
    parallel: Parallel
    namespace_id: str
    namespace_name: str
    stack_name: str
    on_unavailable: OnUnavailable | None
    bucket_ttl_multiplier: int
    overrides: dict[Any, InForce] = field(default_factory=dict)
    lost_settlements: Counter = field(default_factory=Counter)
    uncharged: Counter = field(default_factory=Counter)
    owns_engine: bool = True

    def scoped(
        self,
        namespace_id: str,
        namespace_name: str,
        on_unavailable: OnUnavailable | None,
        bucket_ttl_multiplier: int | None,
    ) -> Context:
        """The same engine and caches, another namespace."""
        return replace(
            self,
            namespace_id=namespace_id,
            namespace_name=namespace_name,
            owns_engine=False,
            on_unavailable=on_unavailable or self.on_unavailable,
            bucket_ttl_multiplier=(
                self.bucket_ttl_multiplier
                if bucket_ttl_multiplier is None
                else bucket_ttl_multiplier
            ),
        )


def check_multiplier(value: int | None) -> int | None:
    """How many times its time to fill a bucket is remembered; 0 for ever."""
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_MULTIPLIER):
        raise ValidationError(
            "bucket_ttl_multiplier", value, f"must be a whole number from 0 to {MAX_MULTIPLIER}"
        )
    return value
