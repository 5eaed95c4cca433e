"""Numbers in the head of an answer that are none, or are none that make sense."""

import pytest

from zae_limiter.transport.response_reader import MalformedResponse, ResponseReader

SUPERSCRIPT_TWO = b"\xb2"  # a digit to str.isdigit(), but not to int()
LENGTHS = {
    "superscript": SUPERSCRIPT_TWO,
    "superscript-among-digits": b"1" + SUPERSCRIPT_TWO,
    "more-digits-than-int-reads": b"9" * 5000,
    "sixteen-digits": b"9" * 16,
    "negative": b"-2",
    "fraction": b"2.0",
    "hexadecimal": b"0x2",
    "blank-inside": b"2 2",
    "list": b"2, 2",
    "nothing": b"",
}
STATUSES = {
    "superscript": b"2" + SUPERSCRIPT_TWO + b"0",
    "all-superscript": SUPERSCRIPT_TWO * 3,
    "underscore": b"2_0",
    "sign": b"+20",
    "negative": b"-20",
    "nothing": b"",
}


def of_length(length):
    return b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n{}"


def of_status(status):
    return b"HTTP/1.1 " + status + b" OK\r\nContent-Length: 2\r\n\r\n{}"


ANSWERS = [
    *(pytest.param(of_length(each), id=f"length-{name}") for name, each in LENGTHS.items()),
    *(pytest.param(of_status(each), id=f"status-{name}") for name, each in STATUSES.items()),
]


@pytest.mark.parametrize("data", ANSWERS)
def test_a_number_that_is_none_is_malformed(data):
    with pytest.raises(MalformedResponse):
        ResponseReader().feed(data)


@pytest.mark.parametrize("data", ANSWERS)
def test_a_number_that_is_none_is_malformed_byte_by_byte(data):
    reader = ResponseReader()
    with pytest.raises(MalformedResponse):
        [reader.feed(data[index : index + 1]) for index in range(len(data))]


@pytest.mark.parametrize("length", [b"9" * 15, b"3"])
def test_a_length_that_is_more_than_has_come_is_waited_for(length):
    reader = ResponseReader()
    assert reader.feed(of_length(length)) is None
    assert reader.end() is None


@pytest.mark.parametrize("length", [b"2", b"02", b"000000000000002"])
def test_a_length_may_begin_with_noughts(length):
    answer = ResponseReader().feed(of_length(length))
    assert (answer.status, answer.body) == (200, b"{}")


@pytest.mark.parametrize("size", [SUPERSCRIPT_TWO, b"-2", b"+2", b"2_0", b"0x2", b"", b" ;x"])
def test_a_size_of_a_chunk_that_is_none_is_malformed(size):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(MalformedResponse):
        ResponseReader().feed(head + size + b"\r\n{}\r\n0\r\n\r\n")


def test_a_chunk_of_any_size_is_waited_for():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert ResponseReader().feed(head + b"f" * 5000 + b"\r\n{}") is None
