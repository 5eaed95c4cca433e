import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.messages import parse_endpoint


@pytest.mark.parametrize(
    ("url", "host_header", "port", "local"),
    [
        (
            "https://dynamodb.eu-west-1.amazonaws.com",
            "dynamodb.eu-west-1.amazonaws.com",
            443,
            False,
        ),
        ("http://localhost:8000", "localhost:8000", 8000, True),
        ("http://LOCALHOST/", "localhost", 80, True),
        ("http://db.localhost:1", "db.localhost:1", 1, True),
        ("http://127.9.8.7:80", "127.9.8.7", 80, True),
        ("http://[::1]:8000", "[::1]:8000", 8000, True),
        ("https://[2001:db8::1]", "[2001:db8::1]", 443, False),
        ("http://10.0.0.1:8000", "10.0.0.1:8000", 8000, False),
        ("http://localhost.example:8000", "localhost.example:8000", 8000, False),
    ],
)
def test_an_endpoint_is_taken_apart(url, host_header, port, local):
    endpoint = parse_endpoint(url)
    assert (endpoint.host_header, endpoint.port, endpoint.is_local) == (host_header, port, local)
    assert endpoint.url == f"{url.split(':')[0]}://{host_header}/"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://[::1",
        "http://user:hush@host",
        "http://host/?a=b",
        "http://host/#a",
        "http://ho st/",
        "http://user:hush@host:port",
        "http://user:hush@[::1",
        "http://host\r\nX-Evil: 1/",
    ],
)
def test_what_is_no_endpoint_is_refused_and_no_password_shown(url):
    with pytest.raises(ValidationError, match="endpoint_url") as caught:
        parse_endpoint(url)
    assert "hush" not in str(caught.value)
