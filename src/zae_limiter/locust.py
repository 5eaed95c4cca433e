"""The documented import path of ``zae_limiter_lab.locust``, the users for load tests."""

from __future__ import annotations

from zae_limiter_lab.locust import RateLimiterSession, RateLimiterUser

__all__ = ["RateLimiterSession", "RateLimiterUser"]
