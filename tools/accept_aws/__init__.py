"""Acceptance of a release on a real AWS account: ``python -m tools.accept_aws``.

``docs/contributing/acceptance.md`` describes the steps, their cost and their limits.
"""
