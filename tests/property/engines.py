"""Two engines side by side: whatever one is asked, the other is asked too."""

import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository, ZAELimiterError
from zae_limiter._sync.engines.sqlite import SqliteClient
from zae_limiter.embedded.housekeeping import delete_expired_buckets
from zae_limiter.embedded.memory.store import open_store
from zae_limiter.embedded.sqlite.database import SqliteDatabase
from zae_limiter.embedded.sqlite.file_options import FileOptions
from zae_limiter.runtime.finishing import Receipt

FOR_EVER_DAYS = 36_500  # the most that a store accepts


@dataclass(frozen=True)
class Answer:
    """What a call returned or raised, in a form that can be compared."""

    error: str | None
    value: object

    @property
    def granted(self):
        return self.error is None


class Engine:
    """One store with two clients: one remembers configuration, one reads it each time."""

    def __init__(self, url, clock, run_housekeeping):
        self._stack = ExitStack()
        repositories = [self._open(url, clock, ttl) for ttl in (60, 0)]
        self.repository = repositories[0]
        self.limiters = [SyncRateLimiter(each, clock=clock) for each in repositories]
        self._housekeeping = run_housekeeping
        self._clock = clock

    def _open(self, url, clock, ttl):
        builder = SyncRepository.builder().url(url).clock(clock).config_cache_ttl(ttl)
        builder.usage_retention_days(FOR_EVER_DAYS).audit_retention_days(FOR_EVER_DAYS)
        builder.request_timeout(30).parallel_mode("serial")
        return self._stack.enter_context(builder.build())

    def keep_house(self):
        self._housekeeping((self._clock(),))

    def close(self):
        self._stack.close()


class Pair:
    """Memory and SQLite; an answer that differs is a failure."""

    def __init__(self, clock):
        self._folder = tempfile.TemporaryDirectory(prefix="zael-property-")
        name = f"property-{uuid.uuid4().hex}"
        path = str(Path(self._folder.name, "limits.db"))
        store = open_store(name)
        self.engines = (
            Engine(
                f"memory://{name}",
                clock,
                lambda args: store.run(delete_expired_buckets, args, Receipt()),
            ),
            Engine(
                f"sqlite:///{path}?synchronous=OFF",
                clock,
                lambda args: self._client.write(delete_expired_buckets, args),
            ),
        )
        self._client = SqliteClient(SqliteDatabase(path, FileOptions("OFF"), 30), 30)

    def ask(self, call):
        """Call both; returns their common answer."""
        memory, sqlite = (_answer(call, engine) for engine in self.engines)
        assert memory == sqlite
        return memory

    def ask_each(self, calls):
        """The same, where each engine has a call of its own."""
        memory, sqlite = (_answer(call) for call in calls)
        assert memory == sqlite
        return memory

    def close(self):
        for engine in self.engines:
            engine.close()
        self._client.close()
        self._folder.cleanup()


def _answer(call, *args):
    try:
        return Answer(None, call(*args))
    except RateLimitExceeded as error:
        return Answer("RateLimitExceeded", tuple(error.statuses))
    except ZAELimiterError as error:
        return Answer(type(error).__name__, str(error))
