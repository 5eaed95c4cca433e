"""What all transports promise, against a server that misbehaves."""

import socket
import time

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.scripted import Script, full_listener
from zae_limiter.store_errors import NoAnswer, NotSent
from zae_limiter.transport.messages import MAX_CONNECTIONS

CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# --- answers


def test_requests_one_after_the_other_share_a_connection(transport):
    with Script(scripted.echo) as server:
        bodies = [f"body {number}".encode() for number in range(20)]
        assert [transport.send(server.url, body).body for body in bodies] == bodies
    assert server.connections == 1


def test_status_and_headers_are_handed_over(transport):
    with Script(scripted.answer({"a": 1}, 400, date="Sun, 15 Nov 2026 09:29:44 GMT")) as server:
        answer = transport.send(server.url)
    assert (answer.status, answer.body) == (400, b'{"a": 1}')
    assert answer.headers["date"] == "Sun, 15 Nov 2026 09:29:44 GMT"


def test_a_large_body_arrives_whole_both_ways(transport):
    body = bytes(range(256)) * 16_384
    with Script(scripted.echo) as server:
        assert transport.send(server.url, body).body == body


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", b"abcde"),
        (CHUNKED + b"1\r\na\r\n0\r\ntrailer: x\r\n\r\n", b"a"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + scripted.message(b"abc"), b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_other_forms_of_an_answer_are_understood(transport, data, body):
    with Script(scripted.raw(data)) as server:
        assert [transport.send(server.url).body for _ in range(3)] == [body] * 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n\r\nabc",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
    ],
)
def test_an_answer_without_a_length_ends_with_the_connection(transport, data):
    with Script(scripted.raw(data, then_close=True)) as server:
        assert [transport.send(server.url).body for _ in range(2)] == [b"abc"] * 2
    assert server.connections == 2


def test_an_answer_that_says_close_is_the_last_of_its_connection(transport):
    with Script(scripted.answer(connection="close"), scripted.echo) as server:
        transport.send(server.url)
        assert transport.send(server.url, b"next").body == b"next"
    assert server.connections == 2


def test_a_slow_answer_in_time_is_an_answer(transport):
    with Script(scripted.dripping(scripted.message(b"slowly"), 0.5)) as server:
        assert transport.send(server.url, timeout=5).body == b"slowly"


# --- nothing was sent


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no-such-name.invalid", "a..b"])
def test_without_a_server_nothing_was_sent(transport, host):
    with pytest.raises(NotSent, match="no connection to"):
        transport.send(f"http://{host}:{closed_port()}")


def test_a_connection_that_is_not_accepted_is_given_up_in_time(transport):
    with (
        full_listener() as url,
        Stopwatch() as watch,
        pytest.raises(NotSent, match="took too long"),
    ):
        transport.send(url, timeout=3, connect_timeout=0.4)
    assert watch.seconds > 0.3
    assert watch.within(0.4)


def test_a_handshake_that_does_not_end_is_given_up_in_time(transport):
    with Script(scripted.hang_before_reading) as server:
        url = server.url.replace("http:", "https:")
        with Stopwatch() as watch, pytest.raises(NotSent):
            transport.send(url, timeout=3, connect_timeout=0.4)
    assert watch.within(0.4)


def test_a_server_that_does_not_speak_tls_has_not_seen_the_request(transport):
    with Script(scripted.echo) as server, pytest.raises(NotSent):
        transport.send(server.url.replace("http:", "https:"), timeout=3, connect_timeout=0.4)
    assert server.seen == []


# --- something may have been sent


@pytest.mark.parametrize(
    "step",
    [
        scripted.reset_before_reading,
        scripted.reset_after_reading,
        scripted.close_after_reading,
        scripted.raw(CUT, then_close=True),
        scripted.raw(b"HTTP/1.1 200", then_close=True),
        scripted.raw(CHUNKED + b"5\r\nab", then_close=True),
        scripted.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        scripted.raw(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"),
        scripted.raw(b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
        scripted.raw(CHUNKED + b"zz\r\n"),
        scripted.raw(b"x" * 100_000),
    ],
)
def test_what_breaks_off_has_no_answer_and_is_told_at_once(transport, step):
    with Script(step, scripted.echo) as server:
        with Stopwatch() as watch, pytest.raises(NoAnswer, match="no answer from"):
            transport.send(server.url, timeout=5)
        assert watch.within(2)
        assert transport.send(server.url, b"next").body == b"next"


@pytest.mark.parametrize(
    "step",
    [
        scripted.hang_before_reading,
        scripted.hang_after_reading,
        scripted.raw(CUT),
        scripted.dripping(scripted.message(b"x" * 50), 20),
        scripted.dripping(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100, 20),
        scripted.dripping(CHUNKED + b"1\r\nx\r\n" * 100, 20),
    ],
)
def test_the_time_is_kept_however_an_answer_is_late(transport, step):
    with Script(step, scripted.echo) as server:
        with Stopwatch() as watch, pytest.raises(NoAnswer, match="took too long"):
            transport.send(server.url, timeout=0.4)
        assert watch.seconds > 0.35
        assert watch.within(0.4)
        assert transport.send(server.url, b"next").body == b"next"


def test_the_time_is_kept_when_the_request_is_not_taken(transport):
    with Script(scripted.hang_before_reading) as server:
        with Stopwatch() as watch, pytest.raises(NoAnswer, match="took too long"):
            transport.send(server.url, b"x" * 50_000_000, timeout=0.5)
        assert watch.within(0.5 + 1.5)  # the request is large


# --- kept connections


def test_a_connection_that_the_server_closed_is_not_used_again(transport):
    with Script(scripted.echo_and_close) as server:
        for number in range(10):
            body = str(number).encode()
            assert transport.send(server.url, body).body == body
            scripted.wait_for_closing(server)
    assert server.connections == 10


def test_a_connection_is_reused_for_its_own_destination_only(transport):
    with Script(scripted.answer({"n": 1})) as one, Script(scripted.answer({"n": 2})) as other:
        for server, body in ((one, b'{"n": 1}'), (other, b'{"n": 2}')) * 2:
            assert [transport.send(server.url).body for _ in range(2)] == [body] * 2
    assert (one.connections, other.connections) == (2, 2)


def test_a_connection_on_which_more_came_than_asked_for_is_not_used_again(transport):
    for surplus in (b"x", scripted.message(b"a second answer")):
        with Script(scripted.raw(scripted.message(b"first") + surplus), scripted.echo) as server:
            assert transport.send(server.url).body == b"first"
            assert transport.send(server.url, b"next").body == b"next"
        assert server.connections == 2


def test_what_comes_unasked_is_not_taken_for_an_answer(transport):
    def answer_twice(wire):
        scripted.echo(wire)
        time.sleep(0.05)
        wire.write(scripted.message(b"nobody asked"))

    with Script(answer_twice, scripted.echo) as server:
        assert transport.send(server.url, b"one").body == b"one"
        time.sleep(0.15)
        assert transport.send(server.url, b"two").body == b"two"


def test_two_hundred_at_once_each_get_their_own_answer(transport):
    bodies = [f"body {number}".encode() for number in range(200)]
    with Script(scripted.echo) as server:
        for _ in range(3):
            assert [a.body for a in transport.send_many(server.url, bodies)] == bodies
    assert server.most_open <= 200


def test_more_than_the_pool_holds_wait_for_their_turn():
    from tests.integration.transport.trees import AsyncTransport

    transport = AsyncTransport()
    bodies = [str(number).encode() for number in range(MAX_CONNECTIONS + 100)]
    with Script(scripted.echo) as server:
        assert [a.body for a in transport.send_many(server.url, bodies)] == bodies
        transport.close()
    assert server.most_open <= MAX_CONNECTIONS


# --- addresses and TLS


def test_ipv6(transport):
    with Script(scripted.echo, host="::1") as server:
        assert transport.send(server.url, b"six").body == b"six"


def test_a_name_is_tried_at_each_of_its_addresses(transport):
    """localhost may mean ::1 first, where no server listens."""
    with Script(scripted.echo) as server:
        assert transport.send(f"http://localhost:{server.port}", b"by name").body == b"by name"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_tls_by_a_list_of_ones_own(transport, certificate, monkeypatch, host, variable):
    monkeypatch.setenv(variable, str(certificate))
    with Script(scripted.echo, certificate=certificate) as server:
        bodies = [str(number).encode() * 10_000 for number in range(5)]
        url = f"https://{host}:{server.port}"
        assert [transport.send(url, body).body for body in bodies] == bodies
    assert server.connections == 1


def untrusted():
    return pytest.raises(NotSent, match=r"(?i)certificate")


def test_tls_to_a_server_with_an_untrusted_certificate_is_refused(transport, certificate):
    with Script(scripted.echo, certificate=certificate) as server, untrusted():
        transport.send(server.url)
    assert server.seen == []


def test_tls_with_a_certificate_for_another_name_is_refused(transport, certificate, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with Script(scripted.echo, host="127.0.0.2", certificate=certificate) as server, untrusted():
        transport.send(server.url)
    assert server.seen == []


def test_tls_that_breaks_off_has_no_answer(transport, certificate, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    steps = (scripted.reset_after_reading, scripted.hang_after_reading, scripted.echo)
    with Script(*steps, certificate=certificate) as server:
        for _ in range(2):
            with pytest.raises(NoAnswer):
                transport.send(server.url, timeout=0.4)
        assert transport.send(server.url, b"next").body == b"next"
