"""When does a request count as sent, and what is said about it."""

import socket
from types import SimpleNamespace

import pytest

from zae_limiter.exceptions import PermissionDenied
from zae_limiter.transport.errors import NoAnswer, NotSent
from zae_limiter.transport.sdk_flight import Flight, GivenUp, failure, late
from zae_limiter.transport.wire import Request, parse_endpoint

ENDPOINT = parse_endpoint("https://dynamodb.example:8000")
VIA = "http://proxy.example:3128"


@pytest.fixture
def flight():
    return Flight(Request(ENDPOINT, b""), 2.0, 1.0)


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    other.settimeout(1)
    with one, other:
        yield SimpleNamespace(sock=one), other


def test_what_was_withdrawn_does_not_leave(flight, ends):
    assert flight.withdraw()
    with pytest.raises(GivenUp):
        flight.leave(ends[0])
    assert isinstance(late(flight, None), NotSent)


def test_what_has_left_cannot_be_withdrawn(flight, ends):
    flight.leave(ends[0])
    assert not flight.withdraw()
    assert flight.is_awaited
    assert flight.arrive()


def test_giving_up_wakes_who_waits_for_the_answer(flight, ends):
    connection, other = ends
    flight.leave(connection)
    flight.give_up()
    assert other.recv(1) == b""
    assert not flight.arrive()
    assert isinstance(late(flight, None), NoAnswer)


def test_giving_up_after_the_arrival_leaves_the_connection_alone(flight, ends):
    connection, other = ends
    flight.leave(connection)
    assert flight.arrive()
    flight.give_up()
    connection.sock.sendall(b"x")
    assert other.recv(1) == b"x"


def test_a_connection_with_a_surplus_is_not_used_again(flight, ends):
    flight.leave(ends[0])
    flight.has_surplus = True
    assert not flight.arrive()


def test_the_time_to_connect_is_part_of_the_whole():
    flight = Flight(Request(ENDPOINT, b""), 0.5, 1.0)
    assert flight.connect_until <= flight.until
    assert Flight(Request(ENDPOINT, b""), 0, 0).left_s() > 0


class Wrapped(Exception):
    """As botocore does it."""

    def __init__(self, error):
        super().__init__("an error with http://user:HUSH@proxy in its text")
        self.kwargs = {"error": error}


def test_words_are_those_of_what_happened(flight):
    error = Wrapped(Wrapped(ConnectionRefusedError(111, "Connection refused")))
    said = failure(flight, error, VIA)
    assert isinstance(said, NotSent)
    assert "through the proxy http://proxy.example:3128" in str(said)
    assert "Connection refused" in str(said)
    assert "NO_PROXY=dynamodb.example" in str(said)
    assert isinstance(said.cause, ConnectionRefusedError)


def test_texts_of_others_are_not_repeated(flight):
    said = failure(flight, Wrapped("no exception"), VIA)
    assert "HUSH" not in str(said)
    assert "Wrapped" in str(said)


def test_a_proxy_that_wants_a_password_is_a_refusal(flight):
    error = Wrapped(OSError("Tunnel connection failed: 407 Proxy Authentication Required"))
    assert isinstance(failure(flight, error, VIA), PermissionDenied)
