"""Through a forward proxy: both trees, tunnels and plain requests, and proxies that misbehave."""

import asyncio
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.forward import ForwardProxy, TlsFront
from tests.integration.transport.scripted import Script, wait_for_requests
from tests.support.dynamodb import shared_endpoint
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.exceptions import InfrastructureError, PermissionDenied, ValidationError
from zae_limiter.store_errors import ConditionFailed, NoAnswer, NotSent, ServerFault

KEY = {"Key": {"PK": {"S": "one"}}}
SCHEMA = {
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
ADD = {
    **KEY,
    "UpdateExpression": "ADD n :one",
    "ExpressionAttributeValues": {":one": {"N": "1"}},
    "ReturnValues": "ALL_NEW",
}
REFUSED = {**ADD, "ConditionExpression": "attribute_not_exists(PK)"}


def named(url):
    """The URL under a name that only the proxy knows: local servers are reached without one."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"dynamodb.test:{parts.port}").geturl()


@pytest.fixture(params=["http", "https"])
def scheme(request):
    """Plain requests, and tunnels."""
    return request.param


@pytest.fixture
def use(monkeypatch, certificate):
    """Sets the proxy, and whom to trust."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))

    def use(url):
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, url)

    return use


@pytest.fixture
def serve(scheme, certificate):
    """Opens a scripted server for the scheme."""
    with ExitStack() as stack:

        def serve(*steps):
            tls = certificate if scheme == "https" else None
            return stack.enter_context(Script(*steps, certificate=tls))

        yield serve


# --- it works


def test_a_real_server_through_a_proxy(open_client, scheme, certificate, use, unique_name):
    with ExitStack() as stack:
        url = shared_endpoint()
        if scheme == "https":
            url = stack.enter_context(TlsFront(url, certificate)).url
        url = named(url)
        proxy = stack.enter_context(ForwardProxy())
        use(proxy.url)
        client = open_client(url, unique_name, request_timeout=20)
        client.call("CreateTable", SCHEMA)
        counts = [
            int(a["Attributes"]["n"]["N"]) for a in client.call_many("UpdateItem", [ADD] * 50)
        ]
        with pytest.raises(ConditionFailed):
            client.call("UpdateItem", REFUSED)
        client.call("DeleteTable", {})
    assert sorted(counts) == list(range(1, 51))
    if scheme == "https":
        assert {method for method, _ in proxy.seen} == {"CONNECT"}
    else:
        assert proxy.seen == [("POST", f"{url}/")] * 53


def test_calls_in_turn_share_a_connection_to_the_proxy(open_client, serve, use):
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        use(proxy.url)
        client = open_client(named(server.url), request_timeout=20)
        for _ in range(20):
            client.call("UpdateItem", KEY)
        # A busy machine may take longer than the time for a connection: it is opened again then.
        assert proxy.connections < 10


def test_what_was_signed_arrives_as_it_was(open_client, serve, use):
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        use(proxy.url)
        client = open_client(named(server.url))
        assert [client.call("UpdateItem", KEY) for _ in range(5)] == [scripted.OK] * 5
        open_client(server.url).call("UpdateItem", KEY)
    signed = ("content-type", "x-amz-target", "content-length", "user-agent")
    through, past = server.seen[0], server.seen[-1]
    assert [through[0][name] for name in signed] == [past[0][name] for name in signed]
    assert through[0]["host"] == f"dynamodb.test:{server.port}"
    assert through[1] == past[1]
    assert through[0]["authorization"].split("Signature=")[0] in past[0]["authorization"]
    assert "proxy-authorization" not in through[0]
    assert proxy.connections == 1


def test_an_endpoint_with_a_path(open_client, serve, use):
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        use(proxy.url)
        assert open_client(f"{named(server.url)}/a/b").call("GetItem", KEY) == scripted.OK


def test_a_proxy_that_wants_a_password(open_client, serve, use):
    server = serve(scripted.answer())
    with ForwardProxy(auth="us@er:pass word") as proxy:
        use(proxy.with_user("us%40er:pass%20word"))
        assert open_client(named(server.url)).call("UpdateItem", KEY) == scripted.OK
    assert "proxy-authorization" not in server.seen[0][0]


def test_other_schemes_proxies_do_not_matter(open_client, scheme, serve, monkeypatch, certificate):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    other = {"http": "HTTPS_PROXY", "https": "HTTP_PROXY"}[scheme]
    monkeypatch.setenv(other, "http://127.0.0.1:1")
    assert open_client(serve(scripted.answer()).url).call("GetItem", KEY) == scripted.OK


# --- what is chosen


def test_a_name_that_only_the_proxy_knows_is_reached_and_secrets_are_not_shown(
    open_client, serve, use, caplog
):
    caplog.set_level("DEBUG", "zae_limiter")
    server = serve(scripted.answer())
    with ForwardProxy(auth="user:HUSH") as proxy:
        use(proxy.with_user("user:HUSH"))
        client = open_client(named(server.url))
        for _ in range(3):
            assert client.call("UpdateItem", KEY) == scripted.OK
    logged = [record.getMessage() for record in caplog.records if "zae_limiter" in record.name]
    assert logged == [f"DynamoDB is reached at {named(server.url)}/ through the proxy {proxy.url}"]
    source = client.client._access_source  # noqa: SLF001
    assert "HUSH" not in repr(vars(client.client)) + repr(vars(source)) + caplog.text


def test_a_local_server_is_reached_without_a_proxy(open_client, serve, use, caplog):
    caplog.set_level("DEBUG", "zae_limiter")
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        use(proxy.url)
        assert open_client(server.url).call("GetItem", KEY) == scripted.OK
    assert proxy.seen == []
    assert f"reached at {server.url}/\n" in caplog.text


def test_no_proxy_names_hosts_that_are_reached_without(open_client, serve, use, monkeypatch):
    """0.0.0.0 is this machine, but not a loopback address."""
    server = serve(scripted.answer())
    url = server.url.replace("127.0.0.1", "0.0.0.0")
    with ForwardProxy() as proxy:
        use(proxy.url)
        assert open_client(url).call("GetItem", KEY) == scripted.OK
        assert len(proxy.seen) == 1
        monkeypatch.setenv("NO_PROXY", f"example.com,0.0.0.0:{server.port}")
        assert open_client(url).call("GetItem", KEY) == scripted.OK
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("host", ["localhost.", "dynamodb.test"])
def test_a_name_that_ends_with_a_dot_is_one_that_certificates_know(
    open_client, certificate, use, host
):
    with Script(scripted.answer(), certificate=certificate) as server, ForwardProxy() as proxy:
        use(proxy.url)
        client = open_client(f"https://{host}:{server.port}")
        assert client.call("GetItem", KEY) == scripted.OK
    assert proxy.seen == [("CONNECT", f"{host}:{server.port}")]


def test_a_list_of_certificates_in_the_profile(open_client, certificate, tmp_path):
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {certificate}\n")
    with Script(scripted.answer(), certificate=certificate) as server:
        assert open_client(server.url).call("GetItem", KEY) == scripted.OK


@pytest.mark.parametrize(
    "url",
    [
        "socks5://user:HUSH@127.0.0.1:1080",
        "https://user:HUSH@127.0.0.1:1080",
        "http://u:HÜSH@h:1",
        "http://",
    ],
)
def test_a_proxy_that_cannot_be_used_is_a_mistake(open_client, monkeypatch, url):
    monkeypatch.setenv("HTTP_PROXY", url)
    with pytest.raises(ValidationError, match=r"HTTP_PROXY.*http://HOST:PORT") as caught:
        open_client("http://192.0.2.1").call("GetItem", KEY)
    assert "HUSH" not in str(caught.value)


def test_certificates_that_cannot_be_read_are_a_mistake(open_client, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(ValidationError, match=r"AWS_CA_BUNDLE.*/no/such/file"):
        open_client("https://127.0.0.1:1").call("GetItem", KEY)
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(nonsense))
    with Script(scripted.answer()) as server:
        client = open_client(f"https://127.0.0.1:{server.port}")
        with pytest.raises(NotSent, match=r"nonsense.pem cannot be read"):
            client.call("GetItem", KEY)


# --- the proxy says no: nothing has reached the store


@pytest.mark.parametrize("user", ["", "user:HUSHHUSH@"])
def test_a_proxy_that_is_given_no_or_a_wrong_password(open_client, serve, use, user):
    server = serve(scripted.answer())
    with ForwardProxy(auth="user:right") as proxy:
        use(proxy.url.replace("://", f"://{user}"))
        with pytest.raises(PermissionDenied, match=r"proxy http.*407.*USER:PASSWORD") as caught:
            open_client(named(server.url)).call("UpdateItem", KEY)
    assert "HUSH" not in str(caught.value)
    assert len(proxy.seen) == 1
    assert server.seen == []


def test_a_proxy_that_does_not_let_us_through(open_client, serve, scheme, use):
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        proxy.says = "403 Forbidden"
        use(proxy.url)
        kind = NotSent if scheme == "https" else PermissionDenied
        with pytest.raises(kind, match=r"proxy http.*403.*NO_PROXY=dynamodb\.test"):
            open_client(named(server.url)).call("UpdateItem", KEY)
    assert server.seen == []


def test_a_proxy_that_does_not_reach_the_server(open_client, scheme, use):
    """Without a tunnel it is unknown whether the request was passed on."""
    with ForwardProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.close()
        use(proxy.url)
        kind = NotSent if scheme == "https" else ServerFault
        with pytest.raises(kind, match="502"):
            open_client(f"{scheme}://dynamodb.test:{port}").call("UpdateItem", KEY)


def test_a_proxy_that_refuses_connections_is_told_at_once(open_client, serve, use):
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        pass
    use(proxy.with_user("user:HUSH"))
    refused = pytest.raises(NotSent, match=r"through the proxy .*refused.*check the proxy")
    with Stopwatch() as watch, refused as caught:
        open_client(named(server.url)).call("UpdateItem", KEY)
    assert watch.within(1)
    assert "HUSH" not in str(caught.value) + repr(vars(caught.value))
    assert server.seen == []


def test_a_proxy_whose_name_is_unknown(open_client, serve, use):
    use("http://no-such-proxy.invalid:3128")
    with pytest.raises(NotSent, match=r"through the proxy http://no-such-proxy"):
        open_client(named(serve(scripted.answer()).url)).call("UpdateItem", KEY)


def test_a_server_behind_a_tunnel_with_an_untrusted_certificate(
    open_client, certificate, monkeypatch
):
    with Script(scripted.answer(), certificate=certificate) as server, ForwardProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(NotSent, match=r"(?i)certificate"):
            open_client(named(server.url)).call("UpdateItem", KEY)
    assert server.seen == []


@pytest.mark.parametrize(
    ("consent", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "more than its consent"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "did not answer CONNECT in HTTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n", "status 302"),
        (b"HTTP/1.1 200", "closed the connection before there was a tunnel"),
    ],
)
def test_what_is_no_consent_to_a_tunnel_is_no_connection(open_client, use, consent, words):
    def answer(wire):
        wire._recv()  # noqa: SLF001 - CONNECT has no length
        wire.write(consent)
        raise scripted.Gone

    with Script(answer) as proxy:
        use(proxy.url)
        with pytest.raises(NotSent, match=words):
            open_client("https://dynamodb.test:1").call("UpdateItem", KEY)


def test_an_interim_response_before_the_consent_is_skipped(open_client, certificate, use):
    with Script(scripted.answer(), certificate=certificate) as server:

        class Hesitant(ForwardProxy):
            def _tunnel(self, sock, target):
                sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                super()._tunnel(sock, target)

        with Hesitant() as proxy:
            use(proxy.url)
            assert open_client(named(server.url)).call("GetItem", KEY) == scripted.OK


# --- the proxy fails: the outcome is unknown


def test_a_proxy_that_dies_in_the_middle_of_an_answer(open_client, serve, scheme, use):
    server = serve(scripted.answer({"text": "x" * 5000}))
    with ForwardProxy() as proxy:
        proxy.cut_after = 4000
        use(proxy.url)
        with pytest.raises(NoAnswer, match=r"no answer from .* through the proxy"):
            open_client(named(server.url)).call("UpdateItem", KEY)
    assert len(server.seen) == 1


def test_a_read_is_made_again_when_the_proxy_dies(open_client, serve, use):
    server = serve(scripted.answer({"text": "x" * 5000}, x_amzn_requestid="A1"))
    with ForwardProxy() as proxy:
        use(proxy.url)
        client = open_client(named(server.url))
        proxy.cut_after = 4000
        with pytest.raises(NoAnswer):
            client.call("UpdateItem", KEY)
        proxy.cut_after = None
        assert len(client.call("GetItem", KEY)["text"]) == 5000


def test_a_proxy_that_hangs_is_given_up_in_time(open_client, serve, scheme, use):
    """A tunnel that opens too late must not let the request through after all."""
    server = serve(scripted.answer())
    with ForwardProxy() as proxy:
        proxy.held.clear()
        use(proxy.url)
        client = open_client(named(server.url), request_timeout=0.5)
        error = NotSent if scheme == "https" else NoAnswer
        with Stopwatch() as watch, pytest.raises(error, match="took too long"):
            client.call("UpdateItem", KEY)
        assert watch.within(0.5)
        proxy.held.set()
        if scheme == "https":
            time.sleep(0.3)
            assert server.seen == []
        else:
            wait_for_requests(server, 1)


def test_a_handshake_behind_a_tunnel_that_does_not_end_is_given_up_in_time(open_client, use):
    with Script(scripted.hang_before_reading) as server, ForwardProxy() as proxy:
        use(proxy.url)
        client = open_client(f"https://dynamodb.test:{server.port}", request_timeout=0.5)
        with Stopwatch() as watch, pytest.raises(NotSent):
            client.call("UpdateItem", KEY)
        assert watch.within(0.5)


def test_a_tunnel_that_is_granted_byte_by_byte_is_given_up_in_time(open_client, use):
    with Script(drip_grant) as proxy:
        use(proxy.url)
        client = open_client("https://dynamodb.test:1", request_timeout=0.5)
        with Stopwatch() as watch, pytest.raises(InfrastructureError, match="took too long"):
            client.call("UpdateItem", KEY)
        assert watch.within(0.5)


def drip_grant(wire):
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100:
        wire.write(bytes([byte]))
        if wire.server.ended.wait(0.05):
            raise scripted.Gone


@pytest.mark.real_time
def test_an_event_loop_goes_on_while_a_proxy_hangs(serve, use):
    server = serve(scripted.answer())

    async def beat(gaps):
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - start)

    async def run():
        url = named(server.url)
        client = DynamoClient("some-table-name", endpoint_url=url, request_timeout=1)
        await client.call("GetItem", KEY)
        proxy.held.clear()
        gaps = []
        beating = asyncio.ensure_future(beat(gaps))
        calls = (client.call("UpdateItem", KEY) for _ in range(30))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        beating.cancel()
        await client.close()
        return gaps, answers

    with ForwardProxy() as proxy:
        use(proxy.url)
        with Stopwatch() as watch:
            gaps, answers = asyncio.run(run())
        proxy.held.set()
    assert any(isinstance(answer, NotSent | NoAnswer) for answer in answers)
    assert max(gaps) < 0.5 + watch.late_s
