"""Both trees behind one face: sync calls run in a thread, and are awaited like the others."""

import asyncio
import functools

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository


class AsyncTree:
    async def open(self, **settings):
        return await Repository.open(**settings)

    async def build(self, **settings):
        """By the builder, which takes more settings; the namespace is made if it is missing."""
        return await _builder(Repository, settings).build()

    def limiter(self, repository, **settings):
        return RateLimiter(repository, **settings)


class SyncTree:
    async def open(self, **settings):
        return Awaited(await asyncio.to_thread(SyncRepository.open, **settings))

    async def build(self, **settings):
        return Awaited(await asyncio.to_thread(_builder(SyncRepository, settings).build))

    def limiter(self, repository, **settings):
        return AwaitedLimiter(SyncRateLimiter(repository.blocking, **settings))


def _builder(kind, settings):
    builder = kind.builder()
    for name, value in settings.items():
        getattr(builder, name)(value)
    return builder.register_missing_namespace()


class Awaited:
    """Every method of an object that blocks."""

    def __init__(self, blocking):
        self.blocking = blocking

    def __getattr__(self, name):
        found = getattr(self.blocking, name)
        return functools.partial(asyncio.to_thread, found) if callable(found) else found


def awaited(repository, part):
    """A part of a repository, to be awaited like the repository itself."""
    return Awaited(part) if isinstance(repository, Awaited) else part


class AwaitedLimiter(Awaited):
    def acquire(self, *args, **options):
        return AwaitedAcquire(self.blocking.acquire(*args, **options))


class AwaitedAcquire:
    def __init__(self, blocking):
        self.blocking = blocking

    async def __aenter__(self):
        return Awaited(await asyncio.to_thread(self.blocking.__enter__))

    async def __aexit__(self, *exc_info):
        return await asyncio.to_thread(self.blocking.__exit__, *exc_info)
