"""Paired primitives: the ``a…`` form for the async tree, the plain one for its sync mirror.

Modules here import asyncio only where they need it: it is half of what importing this package
would cost.
"""
