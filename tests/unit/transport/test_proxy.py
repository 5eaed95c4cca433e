"""Which proxy and which certificates apply to an endpoint."""

import os
import subprocess
import sys

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.access import find_destination
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter.transport.messages import Destination, Proxy, parse_endpoint
from zae_limiter.transport.proxy import tunnel_request

PROXY = "http://user:HUSH@proxy.example:3128"
AWS = "https://dynamodb.eu-west-1.amazonaws.com"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of the machine's set-up."""
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "REQUESTS_CA_BUNDLE", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def destination(url=AWS):
    return find_destination(parse_endpoint(url), AwsConfig())


def proxy_url(url=AWS):
    proxy = destination(url).proxy
    return proxy and proxy.url


@pytest.mark.parametrize("url", [AWS, "http://192.0.2.1:8000/path", "https://[::1]:8000"])
def test_without_settings_there_is_no_proxy(url):
    assert destination(url) == Destination(parse_endpoint(url), None, None)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_the_environment_names_the_proxy(monkeypatch, name):
    monkeypatch.setenv(name, PROXY)
    found = destination()
    assert found.proxy == Proxy("proxy.example", 3128, "Basic dXNlcjpIVVNI")
    assert found.first_hop == ("proxy.example", 3128)
    assert "HUSH" not in repr(found) + str(found)
    assert "dXNlcjpIVVNI" not in repr(found) + str(found)


def test_the_lower_case_spelling_comes_first(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("https_proxy", "http://other.example:8080")
    assert proxy_url() == "http://other.example:8080"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("//proxy.example:3128", "http://proxy.example:3128"),
        ("http://proxy.example", "http://proxy.example:80"),
        ("http://proxy.example:3128/", "http://proxy.example:3128"),
        ("http://[2001:db8::1]:3128", "http://[2001:db8::1]:3128"),
    ],
)
def test_proxies_may_be_written_in_several_ways(monkeypatch, written, meant):
    monkeypatch.setenv("HTTPS_PROXY", written)
    assert proxy_url() == meant


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ("us%40er:pass%20word", "Basic dXNAZXI6cGFzcyB3b3Jk"),
        ("token", "Basic dG9rZW46"),
        ("", None),
    ],
)
def test_user_and_password_of_the_url_are_sent(monkeypatch, user, header):
    monkeypatch.setenv("HTTPS_PROXY", f"http://{user}@proxy.example")
    found = destination()
    assert found.proxy.authorization == header
    lines = tunnel_request(found).decode().split("\r\n")
    assert lines[0] == "CONNECT dynamodb.eu-west-1.amazonaws.com:443 HTTP/1.1"
    assert lines[1] == "Host: dynamodb.eu-west-1.amazonaws.com:443"
    assert lines[2:-2] == ([f"Proxy-Authorization: {header}"] if header else [])


@pytest.mark.parametrize(
    "names",
    ["*", "amazonaws.com", ".amazonaws.com", f"x, {AWS[8:]}", "DYNAMODB.eu-west-1.amazonaws.com"],
)
def test_no_proxy_is_heard(monkeypatch, names):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", names)
    assert proxy_url() is None


@pytest.mark.parametrize("names", ["mazonaws.com", "192.0.2.2", "192.0.2.1:8001", ""])
def test_no_proxy_for_other_hosts_does_not_matter(monkeypatch, names):
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", names)
    assert proxy_url()
    assert proxy_url("http://192.0.2.1:8000")


def test_no_proxy_may_name_a_port(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "192.0.2.1:8000")
    assert proxy_url("http://192.0.2.1:8000") is None
    assert proxy_url("http://192.0.2.1:8001")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "FTP_PROXY"])
def test_proxies_for_something_else_do_not_matter(monkeypatch, name):
    """ALL_PROXY as for botocore."""
    monkeypatch.setenv(name, PROXY)
    assert proxy_url() is None


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_proxy_is_the_one_that_botocore_uses(monkeypatch, scheme):
    from botocore.httpsession import ProxyConfiguration
    from botocore.utils import get_environ_proxies

    url = f"{scheme}://dynamodb.example:8000/"
    for names in ("", "example", "dynamodb.example:8000", "other", "*"):
        monkeypatch.setenv("NO_PROXY", names)
        monkeypatch.setenv("HTTP_PROXY", "http://one.example:1")
        monkeypatch.setenv("HTTPS_PROXY", "two.example:2")
        assert proxy_url(url) == ProxyConfiguration(get_environ_proxies(url)).proxy_url_for(url)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "db.localhost"])
def test_a_local_server_is_reached_without_a_proxy(monkeypatch, host):
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    assert proxy_url(f"http://{host}:8000") is None


@pytest.mark.parametrize(
    "proxy",
    ["socks5://HUSH@h:1", "https://u:HUSH@h:1", "http://", "http://h:HUSH", "http://ü:ü@h", "h:0"],
)
def test_a_proxy_that_cannot_be_used_is_a_mistake(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ValidationError, match=r"HTTPS_PROXY.*not supported.*NO_PROXY") as caught:
        destination()
    assert "HUSH" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "name"),
    [("dynamodb.example.", "dynamodb.example"), ("[fe80::1%eth0]", "fe80::1"), ("a.b", "a.b")],
)
def test_names_are_checked_as_certificates_spell_them(host, name):
    assert parse_endpoint(f"https://{host}:8000").tls_name == name


def test_certificates_in_botocores_order_of_preference(monkeypatch, tmp_path):
    files = {name: tmp_path / f"{name}.pem" for name in ("aws", "profile", "requests")}
    for file in files.values():
        file.touch()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files["requests"]))
    assert destination().ca_bundle == str(files["requests"])
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {files['profile']}\n")
    assert destination().ca_bundle == str(files["profile"])
    monkeypatch.setenv("AWS_CA_BUNDLE", str(files["aws"]))
    assert destination().ca_bundle == str(files["aws"])
    assert destination("http://192.0.2.1").ca_bundle is None


def test_a_profile_that_does_not_exist_does_not_matter_here(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    assert destination() == Destination(parse_endpoint(AWS))


def test_certificates_that_are_not_there_are_a_mistake(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(ValidationError, match="REQUESTS_CA_BUNDLE"):
        destination()


@pytest.mark.parametrize("proxy", ["", "http://proxy.example:3128"])
def test_botocore_is_not_imported_for_a_proxy(proxy):
    code = f"""
import sys
from zae_limiter.transport.proxy import find_proxy
from zae_limiter.transport.messages import parse_endpoint
assert bool(find_proxy(parse_endpoint({AWS!r}))) is {bool(proxy)}
assert "botocore" not in sys.modules
"""
    environment = {**os.environ, "HTTPS_PROXY": proxy}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
