"""The ports over a client that runs operations in a transaction: shared by memory and SQLite."""

from zae_limiter._async.engines.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]
