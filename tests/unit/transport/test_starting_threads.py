"""One moment without threads is over when it is over."""

import threading

import pytest

from zae_limiter.store_errors import NotSent
from zae_limiter.transport.access import AccessSource
from zae_limiter.transport.sockets import Resolver

SOON_S = 10


class Shortage:
    """The system has no thread for those of a name, so many times."""

    def __init__(self, monkeypatch):
        self._start = threading.Thread.start
        self._name, self.left = "", 0
        monkeypatch.setattr(threading.Thread, "start", self._method())

    def of(self, name, *, times=1):
        self._name, self.left = name, times

    def _method(self):
        def start(thread):
            if self.left and thread.name == self._name:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            self._start(thread)

        return start


@pytest.fixture
def shortage(monkeypatch):
    return Shortage(monkeypatch)


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFIRST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def source():
    return AccessSource("us-east-1", "http://127.0.0.1:8000")


@pytest.mark.parametrize("times", [1, 3])
def test_credentials_are_found_once_there_are_threads_again(shortage, source, times):
    shortage.of("zael-credentials", times=times)
    for _ in range(times):
        with pytest.raises(NotSent, match=r"credentials were not looked up.*try again"):
            source.look_up().result(SOON_S)
        assert source.current() is None
    assert shortage.left == 0
    assert source.look_up().result(SOON_S).credentials.access_key == "AKIAFIRST"
    assert source.current() is not None


def test_what_is_known_stays_when_it_can_not_be_renewed(shortage, source, monkeypatch):
    known = source.look_up().result(SOON_S)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASECOND")
    shortage.of("zael-credentials")
    with pytest.raises(NotSent):
        source.look_up(refused=known).result(SOON_S)
    assert source.current() is known
    assert source.look_up(refused=known).result(SOON_S).credentials.access_key == "AKIASECOND"


@pytest.mark.parametrize("times", [1, 3])
def test_names_are_found_once_there_are_threads_again(shortage, times):
    resolver = Resolver()
    shortage.of("zael-dns", times=times)
    for _ in range(times):
        with pytest.raises(OSError, match="the name was not looked up"):
            resolver.addresses("localhost", 8000).result(SOON_S)
    assert shortage.left == 0
    found = resolver.addresses("localhost", 8000).result(SOON_S)
    assert {address[4][1] for address in found} == {8000}


def test_a_numeric_address_needs_no_thread(shortage):
    shortage.of("zael-dns")
    (found,) = Resolver().addresses("127.0.0.1", 8000).result(SOON_S)
    assert found[4] == ("127.0.0.1", 8000)
    assert shortage.left == 1
