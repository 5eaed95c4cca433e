"""Which transport is taken."""

import subprocess
import sys

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.choosing import choose
from zae_limiter.transport.sources import Sources
from zae_limiter.transport.wire import parse_endpoint

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


def route(url, transport="auto"):
    return choose(transport, parse_endpoint(url), Sources())


@pytest.mark.parametrize("url", [AWS, "http://192.0.2.1:8000/path", "https://[::1]:8000"])
def test_our_own_wire_is_the_rule(url):
    assert route(url).transport == "lean"
    assert route(url, "sdk").transport == "sdk"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_a_proxy_is_a_reason(monkeypatch, name):
    monkeypatch.setenv(name, PROXY)
    found = route(AWS)
    assert (found.transport, found.proxy) == ("sdk", PROXY)
    assert found.via == "http://proxy.example:3128"
    assert "HUSH" not in repr(found)
    assert route(AWS, "lean").transport == "lean"


@pytest.mark.parametrize("proxy", ["proxy.example:3128", "//proxy.example:3128"])
def test_a_proxy_may_be_written_without_a_scheme(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    assert route(AWS).proxy == "http://proxy.example:3128"


@pytest.mark.parametrize("names", ["*", "amazonaws.com", ".amazonaws.com", f"x,{AWS[8:]}"])
def test_no_proxy_is_heard(monkeypatch, names):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", names)
    assert route(AWS).transport == "lean"
    assert route(AWS, "sdk").proxy is None


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "FTP_PROXY"])
def test_proxies_for_something_else_do_not_matter(monkeypatch, name):
    monkeypatch.setenv(name, PROXY)
    assert route(AWS).transport == "lean"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "db.localhost"])
def test_a_local_server_is_reached_without_a_proxy_unless_asked(monkeypatch, host):
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    assert route(f"http://{host}:8000").transport == "lean"
    assert route(f"http://{host}:8000", "sdk").proxy == PROXY


@pytest.mark.parametrize("proxy", ["socks5://HUSH@h:1", "http://", "http://h:HUSH", "http://ü:ü@h"])
def test_a_proxy_that_cannot_be_used_is_a_mistake(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ValidationError, match="HTTPS_PROXY") as caught:
        route(AWS)
    assert "HUSH" not in str(caught.value)


@pytest.mark.parametrize("host", ["dynamodb.example.", "[fe80::1%eth0]"])
def test_names_that_no_certificate_contains_are_a_reason(host):
    assert route(f"https://{host}").transport == "sdk"
    assert route(f"http://{host}").transport == "lean"


def test_certificates_of_a_profile_are_a_reason(monkeypatch, tmp_path):
    bundle, other = tmp_path / "bundle.pem", tmp_path / "other.pem"
    bundle.touch()
    other.touch()
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {bundle}\n")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other))
    assert (route(AWS).transport, route(AWS).verify) == ("sdk", str(bundle))
    assert route("http://192.0.2.1").transport == "lean"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(other))
    assert route(AWS).transport == "lean"
    assert route(AWS, "sdk").verify == str(other)


def test_a_profile_that_does_not_exist_is_not_our_business(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    assert route(AWS).transport == "lean"


def test_certificates_that_are_not_there_are_a_mistake(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(ValidationError, match="REQUESTS_CA_BUNDLE"):
        route(AWS, "sdk")
    assert route("http://192.0.2.1", "sdk").verify is True


def test_settings_of_a_proxy_come_from_the_profile(monkeypatch, tmp_path):
    config = "[default]\nproxies_config =\n  proxy_ca_bundle = /some/file\n"
    (tmp_path / "config").write_text(config)
    assert route(AWS, "sdk").proxy_settings == {}
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    assert route(AWS).proxy_settings == {"proxy_ca_bundle": "/some/file"}


def test_without_proxies_botocore_is_not_imported():
    code = f"""
import sys
from zae_limiter.transport.choosing import choose
from zae_limiter.transport.sources import Sources
from zae_limiter.transport.wire import parse_endpoint
assert choose("auto", parse_endpoint({AWS!r}), Sources()).transport == "lean"
assert "botocore" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
