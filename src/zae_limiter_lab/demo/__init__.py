"""Simulated LLM traffic on a real limiter, and a check of the tokens that it admitted.

The check does not trust the limiter: it works on a log that the callers keep themselves, with
its own arithmetic.
"""
