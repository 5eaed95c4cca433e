"""Whatever a caller hands over, a parser reads it or says what is wrong; nothing else is raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRepository, ValidationError
from zae_limiter.naming import (
    check_entity_id,
    check_limit_name,
    check_namespace,
    check_principal,
    check_resource,
    check_stack_name,
)
from zae_limiter.store_url import masked_url, parse_url
from zae_limiter_aggregator.stream import MalformedRecord, parse
from zae_limiter_ops.manifest.reading import read_document, read_yaml

# Text made of the parts that a grammar knows goes deeper than any text.
ANY_TEXT = st.text(max_size=80)
NOTATION = [
    "rpm",
    ":",
    "/",
    "@",
    "1000",
    "0",
    "-1",
    "1e9",
    "min",
    "month",
    "90s",
    "every",
    "+",
    "Europe/Berlin",
    "31",
    "06:00",
    "concurrent",
    "usd",
    "0.5",
    "soft",
    "hold",
    "50",
    ",",
    "²",
    "١",
    " ",
    "first",
]
URLS = [
    "memory://",
    "sqlite:///",
    "dynamodb://",
    "a",
    "/",
    "?",
    "&",
    "=",
    "region",
    "endpoint_url",
    "http://",
    "%",
    "%00",
    "%zz",
    "#",
    "@",
    ":",
    "[",
    "]",
    "..",
    "redis://user:secret@",
    "dynamodb://user:secret@",
    "\0",
]
YAML = [
    "namespace",
    "resources",
    "entities",
    "limits",
    "system",
    ":",
    "\n",
    "  ",
    "- ",
    "rpm",
    "{",
    "}",
    "[",
    "]",
    "1000",
    "&a",
    "*a",
    "<<",
    "!!python/object:os.system",
    "|",
    ">",
    "'",
    '"',
    "# ",
    "null",
    ".inf",
    "1e400",
    "capacity",
    "\t",
    "\0",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)
RECORD_KEYS = st.sampled_from(
    [
        "eventName",
        "dynamodb",
        "NewImage",
        "OldImage",
        "Keys",
        "PK",
        "SK",
        "S",
        "N",
        "op",
        "ph",
        "h",
        "o",
        "n",
        "userIdentity",
        "SequenceNumber",
        "c_rpm",
        "p_rpm",
        "u0",
    ]
)
RECORD_TEXTS = st.sampled_from(
    [
        "MODIFY",
        "INSERT",
        "REMOVE",
        "ns/BUCKET#user#api#0",
        "ns/BUCKET#",
        "#STATE",
        "#AUDIT#x",
        "~1.x",
        "1",
        "-1",
        "10:1:1:0",
        "x",
        "",
    ]
)
RECORDS = st.recursive(
    RECORD_TEXTS | st.integers() | st.none(),
    lambda inner: st.dictionaries(RECORD_KEYS, inner, max_size=6) | st.lists(inner, max_size=2),
    max_leaves=25,
)


def words(parts):
    return st.lists(st.sampled_from(parts), max_size=14).map("".join) | ANY_TEXT


def refusal(call):
    """Return what is wrong with the input; None if it was read."""
    try:
        call()
    except (ValidationError, MalformedRecord) as error:
        return str(error)
    return None


@given(ANY_TEXT | JSON)
def test_names(value):
    for check in (
        check_entity_id,
        check_resource,
        check_limit_name,
        check_namespace,
        check_stack_name,
        check_principal,
    ):
        if refusal(lambda check=check: check(value)) is None:
            assert check(value) == value


@given(words(NOTATION))
def test_limits(text):
    if refusal(lambda: Limit.parse(text)) is None:
        limit = Limit.parse(text)
        assert Limit.parse(str(limit)) == limit


@given(words(URLS))
def test_urls(text):
    assert "user:secret@" not in (refusal(lambda: parse_url(text)) or masked_url(text))


@given(words(YAML))
def test_manifests(text):
    refusal(lambda: read_yaml(text, "limits.yaml"))


@given(st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_documents_of_manifests(document):
    refusal(lambda: read_document(document, "limits.json"))


@given(st.dictionaries(RECORD_KEYS, RECORDS, max_size=6))
def test_stream_records(record):
    refusal(lambda: parse(record))


@pytest.fixture(scope="module")
def repo():
    with SyncRepository.open(url="memory://") as repo:
        repo.create_entity("user-1")
        repo.set_limits("user-1", [Limit.per_minute("rpm", 1)], "api")
        yield repo


@given(cursor=words(["user-1", "#", "api", "0", "~", "\0", "é", "/"]))
def test_cursors(repo, cursor):
    for page in (
        lambda: repo.list_buckets(cursor=cursor),
        lambda: repo.list_entities(cursor=cursor),
        lambda: repo.list_entities_with_custom_limits("api", cursor=cursor),
        lambda: repo.get_usage_snapshots("user-1", "api", next_key=cursor),
        lambda: repo.get_audit_events("user-1", start_event_id=cursor),
    ):
        refusal(page)
