"""What an operator runs: command line, infrastructure, manifests, local servers and reports.

The library (``zae_limiter``) comes here through one door, ``_async/operations.py``.
"""
