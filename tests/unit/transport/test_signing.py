"""Our signature is botocore's for the same request."""

import datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials

from zae_limiter.transport.messages import Destination, parse_endpoint
from zae_limiter.transport.signing import Credentials, Signer

KEYS = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
MOMENTS = [
    datetime.datetime(2026, 11, 15, 9, 29, 44, tzinfo=datetime.UTC),
    datetime.datetime(2020, 2, 29, 23, 59, 59, tzinfo=datetime.UTC),
    datetime.datetime(2027, 1, 1, 0, 0, 0, tzinfo=datetime.UTC),
]
ENDPOINTS = [
    ("https://dynamodb.us-east-1.amazonaws.com", "us-east-1"),
    ("https://dynamodb.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ("http://127.0.0.1:8000", "eu-central-1"),
    ("http://[::1]:8000", "eu-central-1"),
    ("https://proxy.example:443/some/path", "us-gov-west-1"),
]


class Frozen(SigV4Auth):
    """Signs for a moment of our choice; botocore takes the time from its request's context."""

    def __init__(self, credentials, region, moment):
        super().__init__(credentials, "dynamodb", region)
        self._moment = moment

    def add_auth(self, request):
        request.context["timestamp"] = self._moment.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def theirs(url, region, operation, body, token, moment):
    request = AWSRequest(
        "POST",
        url,
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        },
        data=body,
    )
    request.headers["Host"] = parse_endpoint(url).host_header
    Frozen(TheirCredentials(*KEYS, token), region, moment).add_auth(request)
    return request.headers


def ours(message):
    head, _, body = message.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return lines[0], dict(line.split(": ", 1) for line in lines[1:]), body


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjEJr//////////wEaCXVz+LWVhc3QtMSJ="])
@pytest.mark.parametrize(("url", "region"), ENDPOINTS)
def test_our_signature_is_botocores(url, region, token, moment):
    signer = Signer(Destination(parse_endpoint(url)), region)
    for operation, body in (("GetItem", b"{}"), ("UpdateItem", '{"a":"ü☃"}'.encode())):
        message = signer.message(operation, body, Credentials(*KEYS, token), moment.timestamp())
        _, headers, sent = ours(message)
        expected = theirs(url, region, operation, body, token, moment)
        assert headers["Authorization"] == expected["Authorization"]
        assert headers["X-Amz-Date"] == expected["X-Amz-Date"]
        assert headers.get("X-Amz-Security-Token") == expected.get("X-Amz-Security-Token")
        assert sent == body


def test_the_message_is_a_whole_request():
    endpoint = parse_endpoint("http://127.0.0.1:8000")
    message = Signer(Destination(endpoint), "us-east-1").message(
        "GetItem", b"{}", Credentials(*KEYS), 0
    )
    line, headers, _ = ours(message)
    assert line == "POST / HTTP/1.1"
    assert headers["Host"] == "127.0.0.1:8000"
    assert headers["Content-Length"] == "2"
    assert headers["Accept-Encoding"] == "identity"


def test_a_signer_follows_the_day_and_the_credentials():
    """What it keeps of one must not be used for another."""
    url, region = ENDPOINTS[0]
    signer = Signer(Destination(parse_endpoint(url)), region)
    for _ in range(2):
        for moment in MOMENTS:
            for token in (None, "token-1", "token-2"):
                credentials = Credentials(*KEYS, token)
                message = signer.message("Query", b"{}", credentials, moment.timestamp())
                expected = theirs(url, region, "Query", b"{}", token, moment)["Authorization"]
                assert ours(message)[1]["Authorization"] == expected
    other = Credentials(KEYS[0], "another secret")
    assert signer.message("Query", b"{}", other, 0) != signer.message(
        "Query", b"{}", Credentials(*KEYS), 0
    )


def test_credentials_are_never_shown():
    credentials = Credentials("AKIDEXAMPLE", "HUSH", "TOKEN")
    signer = Signer(Destination(parse_endpoint(ENDPOINTS[0][0])), "us-east-1")
    signer.message("GetItem", b"{}", credentials, 0)
    shown = f"{credentials!r} {credentials} {[credentials]} {vars(signer)!r}"
    assert "HUSH" not in shown
    assert "TOKEN" not in shown
