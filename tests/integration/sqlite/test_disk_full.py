"""No space left: SQLite then takes a transaction back by itself, also when asked to commit it."""

from tests.integration.sqlite.faults import run_script

FULL_DISK = """
    import asyncio, fcntl, os, resource, signal, sys, threading
    from zae_limiter import *
    from zae_limiter.testing import FakeClock

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that goes too far fails instead
    SOFT, HARD = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, HARD))

    def empty_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SOFT, HARD))
"""

CANCELLED = (
    FULL_DISK
    + """
    class Clock(FakeClock):
        # Makes room for whatever is written after the charge, so that it would stand.
        charges = None

        def __call__(self):
            if self.charges is not None:
                if self.charges or threading.current_thread() is threading.main_thread():
                    empty_disk()
                self.charges += 1
            return super().__call__()

    async def take(limiter, amount):
        async with limiter.acquire("user", "api", {"rpm": amount}):
            pass

    async def main(url, path):
        clock = Clock()
        async with await Repository.open(url=url, clock=clock) as repo:
            limiter = RateLimiter(repo)
            await repo.set_system_defaults([Limit.per_minute("rpm", 100)])
            await take(limiter, 50)
            file = os.open(path + "-lock", os.O_RDWR)
            fcntl.flock(file, fcntl.LOCK_EX)
            task = asyncio.create_task(take(limiter, 10))
            await asyncio.sleep(0.05)  # the writer waits for the file on its behalf
            task.cancel()
            await asyncio.sleep(0)
            fill_disk()
            clock.charges = 0
            fcntl.flock(file, fcntl.LOCK_UN)
            try:
                await task
            except asyncio.CancelledError:
                print("cancelled")
            finally:
                clock.charges = None
                empty_disk()
            print(await limiter.available("user", "api"), repo.lost_settlements)

    asyncio.run(main(*sys.argv[1:]))
"""
)

MANY = (
    FULL_DISK
    + """
    repo = SyncRepository.open(url=sys.argv[1], clock=FakeClock())
    limiter = SyncRateLimiter(repo)
    repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    repo.create_entity("user", parent_id="team", cascade=True)
    admitted = 0
    for number in range(40):
        if number % 4 == 3:
            fill_disk()
        try:
            with limiter.acquire("user", "api", {"rpm": 1}):
                admitted += 1
        except RateLimiterUnavailable:
            pass
        finally:
            empty_disk()
    team = repo.get_bucket("team", "api", "rpm").tokens
    print(admitted, limiter.available("user", "api"), team, repo.lost_settlements)
"""
)


def test_a_cancelled_acquire_that_did_not_fit_on_the_disk_gives_nothing_back(sqlite_url, path):
    said = run_script(CANCELLED, sqlite_url, path)
    assert said.splitlines() == ["cancelled", "{'rpm': 50} 0"]


def test_just_what_was_admitted_is_charged_when_the_disk_is_full_now_and_then(sqlite_url):
    assert run_script(MANY, sqlite_url).strip() == "30 {'rpm': 70} 70 0"
