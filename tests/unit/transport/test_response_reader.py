"""Answers, cut into pieces in every way."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.transport.response_reader import MalformedResponse, ResponseReader

PLAIN = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\nDate:  now \r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\n"
)
FORMS = {
    PLAIN: (400, b"hello"),
    CHUNKED + b"\r\n": (200, b"abc0123456789"),
    CHUNKED + b"a: b\r\nc: d\r\n\r\n": (200, b"abc0123456789"),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\n" + PLAIN: (400, b"hello"),
    b"HTTP/1.1 204 No Content\r\n\r\n": (204, b""),
    b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n": (200, b""),
}


def read(pieces):
    reader = ResponseReader()
    answers = [reader.feed(piece) for piece in pieces]
    assert answers[:-1] == [None] * (len(pieces) - 1)
    return reader, answers[-1]


@pytest.mark.parametrize("data", FORMS)
def test_an_answer_may_come_byte_by_byte_or_in_two_pieces(data):
    whole = [data]
    single = [data[index : index + 1] for index in range(len(data))]
    halves = [[data[:cut], data[cut:]] for cut in range(1, len(data))]
    for pieces in (whole, single, *halves):
        reader, answer = read(pieces)
        assert (answer.status, answer.body) == FORMS[data]
        assert reader.may_keep


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3200), max_size=8))
def test_any_body_in_any_pieces(body, cuts):
    data = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    _, answer = read(pieces)
    assert answer.body == body


def test_header_names_are_lower_case_and_values_trimmed():
    _, answer = read([PLAIN])
    assert answer.headers == {"content-length": "5", "date": "now"}


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: Keep-Alive", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: Close", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive", True),
    ],
)
def test_when_the_connection_can_be_kept(head, keeps):
    reader, _ = read([head + b"\r\n\r\n"])
    assert reader.may_keep is keeps


@pytest.mark.parametrize("data", FORMS)
def test_more_than_one_answer_spoils_the_connection(data):
    reader, answer = read([data + b"x"])
    assert (answer.status, answer.body) == FORMS[data]
    assert not reader.may_keep


def test_an_answer_without_a_length_ends_with_the_connection():
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nab") is None
    assert reader.feed(b"c") is None
    assert reader.end().body == b"abc"
    assert not reader.may_keep


@pytest.mark.parametrize("data", FORMS)
def test_an_answer_that_was_cut_is_none(data):
    for cut in range(len(data)):
        reader = ResponseReader()
        reader.feed(data[:cut])
        assert reader.end() is None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"220 smtp.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    ],
)
def test_what_is_no_answer_is_told(data):
    with pytest.raises(MalformedResponse):
        ResponseReader().feed(data)
