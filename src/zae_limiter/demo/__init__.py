"""Simulated LLM traffic on a real limiter, and a check of what it let through.

The check trusts nothing of the limiter: it works on a log that the callers keep themselves, with
arithmetic of its own.
"""
