"""Who may ask: tokens, hosts, origins, sites, sizes, and what every answer forbids."""

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess

import pytest

from tests.dashboard.conftest import Client
from zae_limiter.exceptions import ValidationError
from zae_limiter_dashboard.guard import MAX_BODY
from zae_limiter_dashboard.session import MAX_SESSIONS, SESSION_S, Sessions
from zae_limiter_dashboard.settings import DashboardSettings

OVERVIEW = "/n/default/overview"


def test_the_first_page_has_no_data_and_needs_no_session(page):
    client = page.client(signed_in=False)
    status, _, text = client.get("/", Sec_Fetch_Site="none")
    assert status == 200
    assert "acme" not in text
    assert client.token not in text


@pytest.mark.parametrize(
    "path", [OVERVIEW, f"{OVERVIEW}/live", "/n/default/usage.csv", "/home", "/n/default/nothing"]
)
def test_every_read_needs_a_session(page, path):
    client = page.client(signed_in=False)
    assert client.get(path)[0] == 401
    client.cookie = f"zael_dashboard_{client.port}=guessed"
    assert client.get(path)[0] == 401


@pytest.mark.parametrize("body", ['{"token": "wrong"}', "{}", "[]", "nothing", '{"token": 5}'])
def test_a_wrong_token_opens_no_session(page, body):
    client = page.client(signed_in=False)
    status, headers, _ = client.ask("POST", "/session", body)
    assert status == 401
    assert "set-cookie" not in headers


def test_the_cookie_is_hidden_from_scripts_and_other_sites(page):
    client = page.client(signed_in=False)
    cookie = client.sign_in().lower()
    assert cookie.startswith(f"zael_dashboard_{client.port}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.token.lower() not in cookie
    assert client.get(OVERVIEW)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "", None])
def test_a_foreign_host_is_refused(page, host):
    assert page.client().get(OVERVIEW, Host=host or "evil")[0] == 400


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_names_of_this_machine_are_its_own(page, name):
    client = page.client()
    assert client.get(OVERVIEW, Host=f"{name}:{client.port}")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
def test_a_foreign_origin_is_refused(page, origin):
    client = page.client()
    assert client.get(OVERVIEW, Origin=origin)[0] == 403
    assert client.ask("POST", "/session", "{}", Origin=origin)[0] == 403


def test_a_write_without_an_origin_is_refused(page):
    assert page.client().ask("POST", "/n/default/actions/reset", "", Origin=None)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
def test_requests_of_other_sites_are_refused(page, site):
    client = page.client()
    for method, path in (("GET", OVERVIEW), ("GET", "/"), ("POST", "/n/default/actions/reset")):
        assert client.ask(method, path, Sec_Fetch_Site=site)[0] == 403


def test_an_address_may_be_typed_but_not_fetched_from_nowhere(page):
    client = page.client()
    assert client.get(OVERVIEW, Sec_Fetch_Site="none")[0] == 200
    assert client.get(OVERVIEW, Sec_Fetch_Site="none", Sec_Fetch_Mode="cors")[0] == 403
    assert client.ask("POST", "/n/default/actions/reset", "", Sec_Fetch_Site="none")[0] == 403


def test_an_oversized_body_is_refused(page):
    client = page.client()
    assert raw_status(client, f"Content-Length: {MAX_BODY + 1}", []) == 413
    piece = b"%x\r\n%s\r\n" % (MAX_BODY // 4, b"x" * (MAX_BODY // 4))
    assert raw_status(client, "Transfer-Encoding: chunked", [piece] * 5) == 413
    assert raw_status(client, "Content-Length: many", []) in (400, 413)
    assert client.get(f"{OVERVIEW}?q={'x' * 9000}")[0] == 414


def raw_status(client, header, pieces):
    """Return the status of a request whose body is sent until the server hangs up."""
    head = (
        f"POST /n/default/manifest HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        f"Origin: {client.origin}\r\nSec-Fetch-Site: same-origin\r\nCookie: {client.cookie}\r\n"
        f"{header}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode())
            for piece in pieces:
                connection.sendall(piece)
        return int(connection.recv(100).split()[1])


@pytest.mark.parametrize("path", ["/", OVERVIEW, "/static/app.js", "/n/default/nothing"])
def test_every_answer_forbids_foreign_content(page, path):
    _, headers, _ = page.client().get(path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "name", ["pause", "top-up", "reset", "set-limits", "delete-limits", "set-parent"]
)
def test_without_allow_edit_nothing_is_changed(serve, name):
    page = serve()
    client = page.client()
    before = page.repository.get_audit_events()
    for step in ("preview", "confirm"):
        status, text = client.post(
            f"actions/{name}",
            step=step,
            entity="acme",
            resource="gpt-4",
            seconds="60",
            amounts="rpd=1",
            limits="rpm:1",
            before="",
            parent="",
        )
        assert status == 403
        assert "--allow-edit" in text
    assert client.get(f"/n/default/actions/{name}?resource=gpt-4")[0] == 403
    assert page.repository.get_audit_events() == before


def test_a_session_ends_by_itself_and_by_hand():
    clock = [0.0]
    sessions = Sessions("token", 80, lambda: clock[0])
    secret = sessions.open("token")
    assert sessions.knows(secret)
    sessions.close(secret)
    assert not sessions.knows(secret)
    secret = sessions.open("token")
    clock[0] = SESSION_S
    assert not sessions.knows(secret)
    assert not sessions.knows(None)


def test_the_number_of_sessions_is_bounded():
    sessions = Sessions("token", 80)
    first = sessions.open("token")
    for _ in range(MAX_SESSIONS):
        last = sessions.open("token")
    assert not sessions.knows(first)
    assert sessions.knows(last)


def test_signing_out_ends_the_session(page):
    client = page.client()
    assert client.ask("POST", "/session/end", "")[0] == 303
    assert client.get(OVERVIEW)[0] == 401


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "192.0.2.1"},
        {"behind_proxy": True},
        {"principal_header": "X-User"},
    ],
)
def test_settings_that_would_leave_the_page_open_are_refused(settings):
    with pytest.raises(ValidationError):
        DashboardSettings(**settings).check()


def test_behind_a_proxy_the_token_and_the_public_name_are_needed(serve):
    page = serve(behind_proxy=True, public_hosts=("limits.example.com",))
    client = Client(page.server.url)
    names = {"Host": "limits.example.com", "Origin": "https://limits.example.com"}
    assert client.get(OVERVIEW, **names)[0] == 401
    status, headers, _ = client.ask(
        "POST", "/session", json.dumps({"token": client.token}), **names
    )
    assert status == 200
    assert "secure" in headers["set-cookie"].lower()
    client.cookie = headers["set-cookie"].partition(";")[0]
    assert client.get(OVERVIEW, **names)[0] == 200
    assert (
        client.get(OVERVIEW, Host="limits.example.com", Origin="http://limits.example.com")[0]
        == 403
    )


def test_behind_a_proxy_a_change_carries_the_user_that_it_names(serve):
    page = serve(
        behind_proxy=True,
        public_hosts=("limits.example.com",),
        principal_header="X-User",
        allow_edit=True,
    )
    client = page.client(signed_in=False)
    client.origin = f"https://127.0.0.1:{client.port}"
    client.sign_in()
    body = "step=confirm&entity=&resource=&limits=rpm:5&before="
    path = "/n/default/actions/set-limits"
    assert client.ask("POST", path, body)[0] == 400  # nobody is named
    status, _, text = client.ask("POST", path, body, X_User="mia@example.com")
    assert status == 200, text
    (event, *_) = page.repository.get_audit_events("$SYSTEM")
    assert event.principal == "mia@example.com"


def test_the_page_speaks_tls(serve, tmp_path):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is needed to make a certificate")
    certificate, key = tmp_path / "page.pem", tmp_path / "page.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=127.0.0.1", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate, "-days", "1"),
        ],
        check=True,
        capture_output=True,
    )
    page = serve(certificate=certificate, key=key)
    assert page.server.url.startswith("https://127.0.0.1:")
    port = page.server.settings.port
    context = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    token = page.server.url.partition("token=")[2]
    names = {"Origin": f"https://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", "/session", json.dumps({"token": token}), names)
    answer = connection.getresponse()
    assert answer.status == 200
    assert "secure" in answer.getheader("set-cookie").lower()
    connection.close()
