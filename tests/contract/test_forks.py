"""A repository that was opened before a fork."""

import pytest

from tests.integration.sqlite.faults import run_script

FORKS = """
    import asyncio, os, sys, time
    from zae_limiter import *

    LIMITS = [Limit.per_minute("rpm", 10)]

    def in_child(call):
        pid = os.fork()
        if pid == 0:
            try:
                began = time.monotonic()
                call()
            except InfrastructureError as error:
                quick = time.monotonic() - began < 0.5
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
def test_a_sqlite_repository_refuses_to_work_in_a_child_process(tmp_path, script):
    said = run_script(script, f"sqlite:///{tmp_path}/limits.db", seconds=10).splitlines()
    assert said == [
        "admitted 9",
        "refused at once clearly",
        "refused at once clearly",
        "admitted 8",
    ]


def test_a_memory_repository_with_its_threads_works_in_a_child_process():
    said = run_script(SYNC, "memory://", seconds=10).splitlines()
    assert said == ["admitted 9", "admitted 8", "admitted 8"]
