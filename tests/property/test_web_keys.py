"""Whatever headers a client sends: one key, none, or a refusal that does not repeat them."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.generated import examples
from zae_limiter.web.keys import RefusedKey, client_address, hashed_header, header
from zae_limiter.web.requests import WebRequest

SECRET = "zael-secret"
NAMES = st.sampled_from([b"authorization", b"Authorization", b"x-api-key", b"cookie", b""])
PARTS = [
    b"Bearer", b"bearer", b"Basic", b"token", b" ", b"\t", b",", SECRET.encode(), b"\x85", b"\xa0",
    b"\xc3\xa9", b"\xff", b"\0", b"\r\n", b"=", b"YWJj", b"YWJ", b"\xe2\x80\x83",
]  # fmt: skip
VALUES = st.lists(st.sampled_from(PARTS), max_size=5).map(b"".join) | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3)
KEYS = {name: header(name) for name in ("Authorization", "x-api-key")}
HASHED = {name: hashed_header(name, "of-the-server") for name in KEYS}


def asked(headers, client="127.0.0.1"):
    scope = {"method": "GET", "path": "/", "headers": headers, "client": (client, 1)}
    return WebRequest.of_scope(scope)


def key_of(function, headers):
    """Return the key of a request, or the parts of a refusal."""
    try:
        return function(asked(headers))
    except RefusedKey as refused:
        return refused.status, refused.code, refused.message


@examples(200)
@given(headers=HEADERS)
def test_a_hashed_key_shows_nothing_and_is_refused_like_a_plain_one(headers):
    for name, plain in KEYS.items():
        key, hashed = key_of(plain, headers), key_of(HASHED[name], headers)
        if isinstance(key, str):
            assert hashed.removeprefix("key-").isalnum()
            status, *_ = key_of(HASHED[name], [(name.encode(), b"another"), *headers])
            assert status == 400  # else one value might be authenticated and the other one charged
        else:
            assert hashed == key
            assert SECRET not in repr(key)


@examples(100)
@given(
    value=VALUES,
    scheme=st.sampled_from([b"Bearer", b"BEARER", b"bearer"]),
    blanks=st.text(" \t", min_size=1, max_size=3).map(str.encode),
)
def test_one_credential_has_one_key_however_it_is_sent(value, scheme, blanks):
    one = [(b"authorization", b"Bearer " + value)]
    other = [(b"Authorization", scheme + blanks + value + blanks)]
    assert key_of(KEYS["Authorization"], one) == key_of(KEYS["Authorization"], other)


@examples(100)
@given(address=st.text(":.0123456789abcdef%/", max_size=40) | st.ip_addresses().map(str))
def test_any_address_of_a_server_is_one_key_or_none(address):
    key = client_address(asked([], address))
    assert (key is None) == (not address)
    if key is not None:
        assert client_address(asked([], address.upper())) in (key, key.upper())
