"""PutObject: our signature is botocore's, and answers mean what S3 means."""

import datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials

from zae_limiter.store_errors import ServerFault, Throttled
from zae_limiter.transport.errors import Denied, Refused
from zae_limiter.transport.messages import Destination, HttpResponse, Proxy, parse_endpoint
from zae_limiter.transport.signing import Credentials
from zae_limiter_ops.transport.s3 import S3Object, check_put, put_object

KEYS = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
MOMENT = datetime.datetime(2026, 11, 15, 9, 29, 44, tzinfo=datetime.UTC)


class Frozen(S3SigV4Auth):
    """Signs for a moment of our choice."""

    def add_auth(self, request):
        request.context["timestamp"] = MOMENT.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def sent(message):
    head, _, body = message.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return lines[0], dict(line.split(": ", 1) for line in lines[1:]), body


@pytest.mark.each_value_once
@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjEJr//////////wEaCXVz+LWVhc3QtMSJ="])
@pytest.mark.parametrize("path", ["/bucket/a.gz", "/audit/year=2026/day=01/a b~ü+%.gz", "/x//y"])
@pytest.mark.parametrize(
    "url", ["https://my-bucket.s3.eu-west-1.amazonaws.com", "http://127.0.0.1:9000"]
)
def test_our_signature_is_botocores(url, path, token):
    destination = Destination(parse_endpoint(url))
    stored = S3Object(path, b"content", "application/gzip", "gzip")
    message = put_object(
        destination, "eu-west-1", stored, Credentials(*KEYS, token), MOMENT.timestamp()
    )
    line, headers, body = sent(message)
    target = line.split(" ")[1]
    request = AWSRequest(
        "PUT",
        url + target,
        headers={"content-type": "application/gzip", "content-encoding": "gzip"},
        data=b"content",
    )
    request.headers["host"] = destination.endpoint.host_header
    request.context["client_config"] = None
    Frozen(TheirCredentials(*KEYS, token), "s3", "eu-west-1").add_auth(request)
    assert headers["authorization"] == request.headers["Authorization"]
    assert headers["x-amz-content-sha256"] == request.headers["X-Amz-Content-SHA256"]
    assert headers.get("x-amz-security-token") == request.headers.get("X-Amz-Security-Token")
    assert (body, headers["content-length"]) == (b"content", "7")


def test_a_forwarding_proxy_gets_the_whole_url():
    destination = Destination(
        parse_endpoint("http://s3.test"), Proxy("proxy.test", 3128, "Basic x")
    )
    line, headers, _ = sent(
        put_object(destination, "us-east-1", S3Object("/b/k", b""), Credentials(*KEYS), 0)
    )
    assert line == "PUT http://s3.test/b/k HTTP/1.1"
    assert headers["Proxy-Authorization"] == "Basic x"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (503, "SlowDown", Throttled),
        (429, "TooMany", Throttled),
        (500, "InternalError", ServerFault),
        (400, "RequestTimeout", ServerFault),
        (403, "AccessDenied", Denied),
        (404, "NoSuchBucket", Refused),
        (301, "PermanentRedirect", Refused),
    ],
)
def test_answers_mean_what_s3_means(status, code, error):
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    with pytest.raises(error, match=code):
        check_put(HttpResponse(status, {}, body), "bucket/key")


def test_an_answer_without_a_code_is_named_by_its_status():
    with pytest.raises(Refused, match="418"):
        check_put(HttpResponse(418, {}, b"teapot"), "bucket/key")
    check_put(HttpResponse(200, {}, b""), "bucket/key")
