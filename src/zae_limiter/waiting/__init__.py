"""Callers of this process that wait for tokens or slots: their order, and how long they sleep."""
