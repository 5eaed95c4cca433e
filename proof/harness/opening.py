"""The settings with which the processes of a run open the store of our own limiter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from proof.harness.plan import CONFIG_CACHE_S, TTL_MULTIPLIER, Plan

if TYPE_CHECKING:
    from zae_limiter import Repository

PATIENT_S = 20.0


async def open_worker(plan: Plan, url: str) -> Repository:
    """Open the store for the calls of a run, with the default time for an answer."""
    from zae_limiter import Repository

    builder = Repository.builder().url(url).provision("never").config_cache_ttl(CONFIG_CACHE_S)
    if plan.has_expiring_buckets:
        builder.bucket_ttl_multiplier(TTL_MULTIPLIER)
    return await builder.build()


async def open_patient(plan: Plan, provision: Literal["table", "never"] = "never") -> Repository:
    """Open the store before or after a run, when no answer is lost."""
    from zae_limiter import Repository

    builder = Repository.builder().url(plan.url).provision(provision).request_timeout(PATIENT_S)
    if plan.has_expiring_buckets:
        builder.bucket_ttl_multiplier(TTL_MULTIPLIER)
        if provision != "never":
            builder.usage_retention_days(0)  # else buckets outlive the retention of usage
    return await builder.build()
