"""Measures this limiter beside others: ``python -m benchmarks``."""
