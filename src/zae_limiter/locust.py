"""Users for load tests: the documented place of ``zae_limiter_lab.locust``."""

from __future__ import annotations

from zae_limiter_lab.locust import RateLimiterSession, RateLimiterUser

__all__ = ["RateLimiterSession", "RateLimiterUser"]
