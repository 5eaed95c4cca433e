"""The hand-written code that awaits. Its sync mirror ``_sync`` is generated from it."""
