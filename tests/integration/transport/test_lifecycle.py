"""Event loops, threads, forks, interrupts, and closing while calls are under way."""

import asyncio
import gc
import os
import signal
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.scripted import Script, full_listener, wait_for_requests
from tests.integration.transport.trees import request
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.client import DynamoClient as SyncDynamoClient
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.store_errors import NoAnswer
from zae_limiter.transport.aio import AHttp
from zae_limiter.transport.calls import InFlightCall, InFlightCalls
from zae_limiter.transport.messages import MAX_CONNECTIONS

KEY = {"Key": {"PK": {"S": "one"}}}
TABLE = "some-table-name"


def ask(number):
    return {"TableName": TABLE, "Number": number}


@pytest.fixture
def no_leaks():
    """A socket that was not closed warns when it is collected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


# --- event loops


def test_a_client_may_be_used_in_one_loop_after_the_other(no_leaks):
    async def twice(client):
        return [await client.call("GetItem", ask(number)) for number in range(2)]

    with Script(scripted.echo) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        for _ in range(3):
            assert asyncio.run(twice(client)) == [ask(0), ask(1)]
        assert client._http._pools == {}  # noqa: SLF001 - nothing is held of loops that ended
        asyncio.run(client.close())
    assert server.connections == 3
    assert server.open_now == 0


def test_loops_in_several_threads_use_a_client_at_once(no_leaks):
    async def many(client, base):
        numbers = range(base, base + 20)
        answers = await asyncio.gather(*(client.call("GetItem", ask(n)) for n in numbers))
        return [answer["Number"] for answer in answers] == list(numbers)

    with Script(scripted.echo) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(asyncio.run, many(client, 100 * n)) for n in range(8)]
            assert all(run.result() for run in runs)
        asyncio.run(client.close())


def test_a_loop_that_ends_in_the_middle_of_a_call_leaves_nothing(no_leaks):
    async def leave_early(client):
        task = asyncio.ensure_future(client.call("UpdateItem", KEY))
        await asyncio.sleep(0.1)
        return task

    with Script(scripted.hang_after_reading, scripted.echo) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        assert asyncio.run(leave_early(client)).cancelled()
        assert asyncio.run(client.call("GetItem", ask(1))) == ask(1)
        asyncio.run(client.close())


async def test_a_cancelled_call_does_not_spoil_the_next_ones(no_leaks):
    def slow_echo(wire):
        _, body = wire.read()
        time.sleep(0.02)
        wire.write(scripted.message(body, x_amzn_requestid="scripted"))

    with Script(slow_echo) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        for number in range(30):
            task = asyncio.ensure_future(client.call("GetItem", ask(-number)))
            await asyncio.sleep(number / 1000)
            task.cancel()
            answer = await client.call("GetItem", ask(number))
            assert answer == ask(number)
        await client.close()


async def test_calls_cancelled_by_the_hundred_leave_room(no_leaks):
    with Script(scripted.hang_after_reading) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        for _ in range(2):
            tasks = [asyncio.ensure_future(client.call("GetItem", KEY)) for _ in range(300)]
            await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        server.steps = [scripted.echo]
        assert await client.call("GetItem", ask(1)) == ask(1)
        await client.close()


async def test_connecting_that_is_cancelled_leaves_room(no_leaks):
    http = AHttp()
    with full_listener() as url, Script(scripted.echo) as server:
        sends = [http.send(*request(url), 10, 10) for _ in range(MAX_CONNECTIONS + 20)]
        tasks = [asyncio.ensure_future(send) for send in sends]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await http.send(*request(server.url, b"next"), 2, 2)).body == b"next"
        await http.close()


# --- closing


def test_a_closed_client_says_so(open_client):
    with Script(scripted.answer()) as server:
        client = open_client(server.url)
        client.call("GetItem", KEY)
        client.finish()
        with pytest.raises(InfrastructureError, match="the repository is closed; open it again"):
            client.call("GetItem", KEY)
    assert len(server.seen) == 1


def test_closing_waits_for_what_is_under_way_sync(no_leaks):
    release = threading.Event()

    def held(wire):
        wire.read()
        release.wait(10)
        wire.write(scripted.message(b'{"late": 1}', x_amzn_requestid="scripted"))

    with Script(held) as server, ThreadPoolExecutor(9) as pool:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)
        calls = [pool.submit(client.call, "UpdateItem", KEY) for _ in range(8)]
        wait_for_requests(server, 8)
        closing = pool.submit(client.close)
        time.sleep(0.1)
        assert not closing.done()
        release.set()
        assert [call.result() for call in calls] == [{"late": 1}] * 8
        closing.result(1)
        client.close()


async def test_closing_waits_for_what_is_under_way_async(no_leaks):
    release = threading.Event()

    def held(wire):
        wire.read()
        release.wait(10)
        wire.write(scripted.message(b'{"late": 1}', x_amzn_requestid="scripted"))

    with Script(held) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)
        calls = [asyncio.ensure_future(client.call("UpdateItem", KEY)) for _ in range(8)]
        await asyncio.to_thread(wait_for_requests, server, 8)
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        release.set()
        assert await asyncio.gather(*calls) == [{"late": 1}] * 8
        await asyncio.wait_for(closing, 5)
        await client.close()


async def test_closing_does_not_wait_longer_than_a_request_may_take(no_leaks):
    with Script(scripted.hang_after_reading) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url, request_timeout=0.3)
        call = asyncio.ensure_future(client.call("UpdateItem", KEY, deadline=Deadline(30)))
        await asyncio.to_thread(wait_for_requests, server, 1)
        with Stopwatch() as watch:
            await client.close()
        assert watch.within(0.3)
        with pytest.raises(NoAnswer):
            await call


# --- threads, interrupts, forks


def test_threads_share_connections(no_leaks):
    with Script(scripted.echo) as server:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)

        def many(base):
            return [client.call("GetItem", ask(base + n))["Number"] - base for n in range(50)]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(many, range(0, 800, 100))) == [list(range(50))] * 8
        client.close()
    assert server.connections <= 8


def test_an_interrupt_in_the_middle_does_not_spoil_the_next_call(no_leaks):
    """The answer to the interrupted request must not be taken for the next one's."""

    def slow_echo(wire):
        _, body = wire.read()
        time.sleep(0.1)
        wire.write(scripted.message(body, x_amzn_requestid="scripted"))

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Script(slow_echo) as server:
            client = SyncDynamoClient(TABLE, endpoint_url=server.url)
            for number in range(5):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises(KeyboardInterrupt):
                    client.call("GetItem", ask(-1))
                assert client.call("GetItem", ask(number)) == ask(number)
            client.close()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_may_call_while_its_thread_is_calling(no_leaks):
    with Script(scripted.echo) as server:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)
        handled = []
        before = signal.signal(
            signal.SIGALRM, lambda *_: handled.append(client.call("GetItem", ask(7)))
        )
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.007)
            for number in range(300):
                assert client.call("GetItem", ask(number)) == ask(number)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        client.close()
    assert handled
    assert all(answer == ask(7) for answer in handled)


def test_a_signal_handler_may_start_a_call_while_one_is_being_counted():
    calls, handled = InFlightCalls(), []

    def handler(*_):
        with InFlightCall(calls):
            pass
        handled.append(1)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(handled) < 200:
            with InFlightCall(calls):
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls.close().done()


def in_child(work):
    """Run it in a forked child; its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_opens_connections_of_its_own():
    with Script(scripted.echo) as server:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)
        assert client.call("GetItem", ask(0)) == ask(0)

        def work():
            return all(client.call("GetItem", ask(n)) == ask(n) for n in range(20))

        assert [in_child(work) for _ in range(3)] == [0] * 3
        assert all(client.call("GetItem", ask(n)) == ask(n) for n in range(20))
        assert in_child(lambda: client.close() is None) == 0
        assert client.call("GetItem", ask(0)) == ask(0)
        client.close()
    assert server.connections == 4


def test_a_fork_in_the_middle_of_other_threads_calls():
    with Script(scripted.echo) as server:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)
        stop = threading.Event()
        wrong = []

        def keep_calling(number):
            while not stop.is_set():
                if client.call("GetItem", ask(number)) != ask(number):
                    wrong.append(number)

        threads = [threading.Thread(target=keep_calling, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def work():
            answers = [client.call("GetItem", ask(100 + n)) == ask(100 + n) for n in range(5)]
            client.close()
            return all(answers)

        codes = [in_child(work) for _ in range(10)]
        stop.set()
        for thread in threads:
            thread.join()
        client.close()
    assert codes == [0] * 10
    assert wrong == []


def test_a_forked_child_does_not_wait_for_the_parents_calls():
    with Script(scripted.hang_after_reading) as server, ThreadPoolExecutor(1) as pool:
        client = SyncDynamoClient(TABLE, endpoint_url=server.url)
        call = pool.submit(client.call, "UpdateItem", KEY)
        wait_for_requests(server, 1)

        def close():
            with Stopwatch() as watch:
                client.close()
            return watch.within(0.5)

        assert in_child(close) == 0
        with pytest.raises(NoAnswer):
            call.result()
        client.close()


def test_a_forked_child_of_an_event_loop_starts_its_own():
    async def calls(client):
        return [await client.call("GetItem", ask(n)) for n in range(3)] == [
            ask(n) for n in range(3)
        ]

    with Script(scripted.echo) as server:
        client = DynamoClient(TABLE, endpoint_url=server.url)

        async def parent():
            assert await calls(client)
            code = await asyncio.to_thread(in_child, lambda: asyncio.run(calls(client)))
            assert await calls(client)
            await client.close()
            return code

        assert asyncio.run(parent()) == 0
    assert server.connections == 2
