"""Changes that an operator makes: each is previewed, confirmed, and shown as a command line."""

from __future__ import annotations

from zae_limiter_dashboard.bucket_actions import PAUSE, RESET, TOP_UP
from zae_limiter_dashboard.limit_actions import DELETE_LIMITS, SET_LIMITS
from zae_limiter_dashboard.parent_action import SET_PARENT
from zae_limiter_dashboard.previews import PageAction

# By the last part of the address of its form.
ACTIONS: dict[str, PageAction] = {
    "pause": PAUSE,
    "top-up": TOP_UP,
    "reset": RESET,
    "set-limits": SET_LIMITS,
    "delete-limits": DELETE_LIMITS,
    "set-parent": SET_PARENT,
}
