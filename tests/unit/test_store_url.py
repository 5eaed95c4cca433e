import pytest

from zae_limiter import ValidationError
from zae_limiter.store_url import (
    StoreUrl,
    absolute_url,
    check_region,
    masked_url,
    parse_url,
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://", StoreUrl("memory", "", {})),
        ("memory:///", StoreUrl("memory", "", {})),
        ("memory://shared", StoreUrl("memory", "shared", {})),
        ("memory://Shared", StoreUrl("memory", "Shared", {})),
        ("sqlite:///limits.db", StoreUrl("sqlite", "limits.db", {})),
        ("sqlite:///data/limits.db", StoreUrl("sqlite", "data/limits.db", {})),
        ("sqlite:////var/lib/limits.db", StoreUrl("sqlite", "/var/lib/limits.db", {})),
        ("sqlite:///a%20b%23c.db", StoreUrl("sqlite", "a b#c.db", {})),
        ("sqlite:///a b.db", StoreUrl("sqlite", "a b.db", {})),
        (
            "sqlite:///limits.db?synchronous=FULL",
            StoreUrl("sqlite", "limits.db", {"synchronous": "FULL"}),
        ),
        ("dynamodb://my-stack", StoreUrl("dynamodb", "my-stack", {})),
        (
            "dynamodb://my-stack?region=eu-west-1&endpoint_url=http%3A//localhost%3A8000",
            StoreUrl(
                "dynamodb",
                "my-stack",
                {"region": "eu-west-1", "endpoint_url": "http://localhost:8000"},
            ),
        ),
    ],
)
def test_known_forms(url, expected):
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgres://user:hidden@host/db",
        "redis://:hidden@host",
        "postgres://user:hid@hidden/hidden@host/db",
        "dynamodb://user:hidden@stack",
        "memory://user:hidden@name#",
        "dynamodb://stack?endpoint=http://user:hidden@host",
        "dynamodb://stack?endpoint=http%3A%2F%2Fuser%3Ahidden%40host",
        "sqlite://user:hidden@/limits.db",
    ],
)
def test_an_error_shows_no_password(url):
    with pytest.raises(ValidationError) as caught:
        parse_url(url)
    assert caught.value.field == "url"
    assert "hid" not in str(caught.value)
    assert "hid" not in repr(caught.value.value)


def test_a_file_is_the_same_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = parse_url(absolute_url("sqlite:///a%20b%23c%25.db?synchronous=FULL"))
    assert found == StoreUrl("sqlite", f"{tmp_path}/a b#c%.db", {"synchronous": "FULL"})
    for url in ("memory://a", "sqlite:////var/limits.db", "dynamodb://my-app?region=us-east-1"):
        assert absolute_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "memory:/",
        "redis://localhost",
        "limits.db",
        "/var/lib/limits.db",
        "sqlite:limits.db",
        "sqlite://limits.db",
        "sqlite://host/limits.db",
        "sqlite:///",
        "sqlite://",
        "memory://name/more",
        "dynamodb://",
        "dynamodb://stack/table",
        "dynamodb://a_b",
        "://",
        "memory://[",
        "sqlite://]/x",
    ],
)
def test_other_forms_are_refused_with_the_known_ones_shown(url):
    with pytest.raises(ValidationError) as caught:
        parse_url(url)
    assert caught.value.field == "url"


@pytest.mark.parametrize("url", [None, 5, b"redis://user:s3cret@host", ["memory://"]], ids=repr)
def test_a_url_is_text(url):
    with pytest.raises(ValidationError, match="sqlite:///") as raised:
        parse_url(url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("memory://?size=5", "size"),
        ("sqlite:///limits.db?timeout=5", "timeout"),
        ("sqlite:///limits.db?region=eu-west-1", "region"),
        ("dynamodb://stack?synchronous=OFF", "synchronous"),
        ("memory://?size", "size"),
    ],
)
def test_unknown_options_are_not_ignored(url, option):
    with pytest.raises(ValidationError, match=option):
        parse_url(url)


def test_a_path_is_never_cut_short():
    """What follows a '#' would be dropped as a fragment."""
    with pytest.raises(ValidationError, match="%23"):
        parse_url("sqlite:///limits#1.db")
    assert parse_url("sqlite:///limits%231.db").place == "limits#1.db"


@pytest.mark.parametrize("region", [None, "us-east-1", "eu-west-1", "us-gov-west-1", "local"])
def test_regions(region):
    assert check_region(region) == region


@pytest.mark.parametrize("region", ["", "US East", "a.b", "a/b", "-a", "a-", "us--east", 5])
def test_a_region_becomes_part_of_a_host_name_so_nothing_else_will_do(region):
    with pytest.raises(ValidationError) as caught:
        check_region(region)
    assert caught.value.field == "region"


SECRETS = [
    "postgres://user:s3cret@host/db",
    "redis://:s3cret@host:6379/0",
    "dynamodb://user:s3cret@stack",
    "dynamodb://user:s3cr/et@stack",
    "memory://x?password=s3cret",
    "dynamodb://stack?aws_secret_access_key=s3cret&region=x",
    "dynamodb://stack?region=x&endpoint=http%3A%2F%2Fuser%3As3cret%40host",
    "dynamodb://stack/path?token=s3cret",
    "user:s3cret@host",
    "redis://user:s3cret with spaces\tand\nlines @host",
    "http://user:s3cret@[host",
    "sqlite://user:s3cret@host/file.db",
    "sqlite:///file.db?key=s3cret#x",
]


@pytest.mark.parametrize("url", SECRETS)
def test_an_error_shows_no_credentials_of_a_url(url):
    with pytest.raises(ValidationError) as raised:
        parse_url(url)
    error = raised.value
    assert "s3c" not in f"{error} {error.value} {error.reason} {error!r} {error.args}"
    assert error.__cause__ is None
    assert url[:4] in str(error) or "***" in str(error)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("sqlite:////home/me@host/x.db", "sqlite:////home/me@host/x.db"),
        ("sqlite:///x.db?synchronous=OFF", "sqlite:///x.db?synchronous=OFF"),
        ("dynamodb://stack?region=eu-west-1", "dynamodb://stack?region=eu-west-1"),
        ("http://user:pw@host/x", "http://***@host/x"),
    ],
)
def test_only_credentials_are_masked(url, shown):
    assert masked_url(url) == shown


def test_the_name_of_an_unknown_option_shows_no_password():
    with pytest.raises(ValidationError) as caught:
        parse_url("memory://?redis://user:s3cret@host")
    assert "s3cret" not in str(caught.value)
