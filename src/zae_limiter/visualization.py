"""The documented import path of ``zae_limiter_ops.reports.visualization``."""

from __future__ import annotations

from zae_limiter_ops.reports.visualization import UsageFormatter, format_usage_snapshots

__all__ = ["UsageFormatter", "format_usage_snapshots"]
