"""The documented import path of ``zae_limiter_ops.cdk``, the construct for AWS CDK."""

from __future__ import annotations

from zae_limiter_ops.cdk import RateLimiterConstruct

__all__ = ["RateLimiterConstruct"]
