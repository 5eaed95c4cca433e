"""A repository that was opened before a fork."""

import pytest

from tests.contract.engines import dynamodb_url, sqlite_url
from tests.integration.sqlite.faults import run_script

FORKS = """
    import asyncio, os, sys
    from zae_limiter import *
    from zae_limiter_contract.stopwatch import Stopwatch

    LIMITS = [Limit.per_minute("rpm", 10)]

    def in_child(call):
        pid = os.fork()
        if pid == 0:
            watch = Stopwatch()
            try:
                with watch:
                    call()
            except InfrastructureError as error:
                quick = watch.within(0.5)  # the timeout is 2 s
                clear = "fork" in str(error) and "open" in str(error)
                print("refused", "at once" if quick else "late", error if not clear else "clearly")
            except BaseException as error:
                print(repr(error))
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(pid, 0)
"""

ASYNC = (
    FORKS
    + """
    async def use(limiter):
        async with limiter.acquire("user", "api", {"rpm": 1}):
            print("admitted", (await limiter.available("user", "api"))["rpm"])
            sys.stdout.flush()

    async def main():
        repo = await Repository.open(url=sys.argv[1])
        limiter = RateLimiter(repo)
        await repo.set_system_defaults(LIMITS)
        await use(limiter)
        return repo, limiter

    loop = asyncio.new_event_loop()
    repo, limiter = loop.run_until_complete(main())
    in_child(lambda: asyncio.run(use(limiter)))
    in_child(lambda: asyncio.run(limiter.available("other", "api")))
    in_child(lambda: asyncio.run(repo.close()))
    loop.run_until_complete(use(limiter))
    loop.run_until_complete(repo.close())
"""
)

SYNC = (
    FORKS
    + """
    def use():
        with limiter.acquire("user", "api", {"rpm": 1}):
            print("admitted", limiter.available("user", "api")["rpm"])
            sys.stdout.flush()

    repo = SyncRepository.open(url=sys.argv[1], parallel_mode="threadpool")
    limiter = SyncRateLimiter(repo)
    repo.set_system_defaults(LIMITS)
    repo.create_entity("user", parent_id="team", cascade=True)
    use()
    in_child(use)
    in_child(lambda: limiter.available("other", "api"))
    in_child(repo.close)
    use()
    repo.close()
"""
)


@pytest.mark.parametrize("script", [ASYNC, SYNC], ids=["async", "sync"])
def test_a_sqlite_repository_is_opened_again_in_a_child_process(tmp_path, script):
    said = run_script(script, f"sqlite:///{tmp_path}/limits.db", seconds=10).splitlines()
    assert said == ["admitted 9", "admitted 8", "admitted 7"]


def test_a_memory_repository_with_its_threads_works_in_a_child_process():
    said = run_script(SYNC, "memory://", seconds=10).splitlines()
    assert said == ["admitted 9", "admitted 8", "admitted 8"]


WITH_URL = """
    import asyncio, os, sys
    from zae_limiter import *

    LIMITS = [Limit.per_day("rpd", 10)]
    limiter = SyncRateLimiter(url=sys.argv[1], request_timeout=10)
    async_limiter = RateLimiter(url=sys.argv[1], request_timeout=10)
    if sys.argv[2] == "opened":
        limiter.set_system_defaults(LIMITS)
        asyncio.run(async_limiter.get_entity("user"))

    async def take_async():
        async with async_limiter, async_limiter.acquire("user", "api", {"rpd": 1}, LIMITS):
            pass

    def work():
        with limiter, limiter.acquire("user", "api", {"rpd": 1}, LIMITS):
            pass
        asyncio.run(take_async())

    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
    print(limiter.available("user", "api", LIMITS))
    limiter.close()
"""


@pytest.mark.parametrize("state", ["unopened", "opened"])
@pytest.mark.parametrize("engine", ["sqlite", "dynamodb"])
def test_workers_share_the_limits_of_a_limiter_that_was_made_before_they_were_forked(
    tmp_path, request, engine, state
):
    url = sqlite_url(tmp_path)
    if engine == "dynamodb":
        url = dynamodb_url(request.getfixturevalue("dynamodb_table"))
    said = run_script(WITH_URL, url, state, seconds=60).splitlines()
    assert said == ["[0, 0, 0, 0]", "{'rpd': 2}"]


DURING_WRITES = """
    import os, sys, threading, warnings
    from zae_limiter import *

    warnings.simplefilter("ignore")  # newer Pythons warn of threads
    repo = SyncRepository.open(url=sys.argv[1], request_timeout=10)
    limiter = SyncRateLimiter(repo)
    repo.set_system_defaults([Limit.per_day("rpd", 10**6)])
    end = threading.Event()
    written = []

    def write(name):
        count = 0
        try:
            while not end.is_set():
                with limiter.acquire(name, "api", {"rpd": 1}):
                    count += 1
        finally:
            written.append(count)

    def list_buckets():
        while not end.is_set():
            repo.get_resource_buckets("api")

    threads = [threading.Thread(target=write, args=[f"user-{number}"]) for number in range(3)]
    threads.append(threading.Thread(target=list_buckets))
    for thread in threads:
        thread.start()
    children = []
    for _ in range(int(sys.argv[2])):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with limiter.acquire("child", "api", {"rpd": 1}, on_unavailable="allow") as lease:
                    status = 0 if lease.consumed == {"rpd": 1} else 2
            finally:
                os._exit(status)
        children.append(pid)
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    end.set()
    for thread in threads:
        thread.join()
    print(sorted(set(ends)))
    used = sum(state.total_consumed_milli // 1000 for state in repo.get_resource_buckets("api"))
    print(repo.get_bucket("child", "api", "rpd").total_consumed_milli // 1000)
    print(used - sum(written))
    repo.close()
"""


@pytest.mark.parametrize("forks", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_every_child_that_is_forked_during_writes_is_charged(tmp_path, forks):
    """A lock that a thread of the parent held was never released, and the child was let through."""
    url = f"sqlite:///{tmp_path}/limits.db?synchronous=OFF"
    said = run_script(DURING_WRITES, url, forks, seconds=120).splitlines()
    assert said == ["[0]", str(forks), str(forks)]
