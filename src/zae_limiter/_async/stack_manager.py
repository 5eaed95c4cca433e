"""The documented import path of StackManager, which creates, updates and deletes stacks."""

from __future__ import annotations

from zae_limiter_ops._async.infra.stack_manager import StackManager

__all__ = ["StackManager"]
