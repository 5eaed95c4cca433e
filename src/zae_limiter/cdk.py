"""The construct for AWS CDK: the documented place of ``zae_limiter_ops.cdk``."""

from __future__ import annotations

from zae_limiter_ops.cdk import RateLimiterConstruct

__all__ = ["RateLimiterConstruct"]
