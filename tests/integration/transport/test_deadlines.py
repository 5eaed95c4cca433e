"""Each exchange has its own time, also where several share a connection."""

import time

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.scripted import Script
from zae_limiter.store_errors import NoAnswer


def echo_after(seconds):
    def step(wire):
        _, body = wire.read()
        time.sleep(seconds)
        wire.write(scripted.message(body))

    return step


def test_a_short_time_counts_after_a_long_one(transport):
    with Script(scripted.echo, scripted.echo, scripted.hang_after_reading) as server:
        for _ in range(2):
            transport.send(server.url, timeout=30.0)
        with Stopwatch() as watch, pytest.raises(NoAnswer):
            transport.send(server.url, timeout=0.2)
        assert watch.seconds > 0.15
        assert watch.within(0.2)
    assert server.connections == 1


def test_a_long_time_counts_after_a_short_one(transport):
    """Also when the earlier one is over while the later exchange is under way."""
    with Script(scripted.echo, echo_after(1.3), scripted.echo) as server:
        transport.send(server.url, b"one", timeout=1.0)
        assert transport.send(server.url, b"two", timeout=5.0).body == b"two"
        assert transport.send(server.url, b"three", timeout=5.0).body == b"three"
    assert server.connections == 1


def test_a_time_that_was_put_off_is_kept(transport):
    with Script(scripted.echo, scripted.hang_after_reading) as server:
        transport.send(server.url, timeout=1.0)
        with Stopwatch() as watch, pytest.raises(NoAnswer):
            transport.send(server.url, timeout=1.5)
        assert watch.seconds > 1.45
        assert watch.within(1.5)


def test_an_idle_connection_outlives_the_time_of_its_last_exchange(transport):
    with Script(scripted.echo) as server:
        transport.send(server.url, timeout=1.0)
        time.sleep(1.1)
        assert transport.send(server.url, b"next", timeout=5.0).body == b"next"
    assert server.connections == 1
