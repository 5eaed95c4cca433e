"""The operations of zae-limiter: command line, infrastructure, manifests, local servers, reports.

The library (``zae_limiter``) imports this package in one module only, ``_async/operations.py``.
"""
