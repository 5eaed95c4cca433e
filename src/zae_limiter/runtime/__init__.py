"""Tasks, threads, greenlets and forks: how calls run, wait for each other, and are finished.

Of paired primitives, the form ``a…`` is for the async tree, the plain form for its sync mirror. The
modules import asyncio inside of functions where they can: it would double the import time.
"""
