"""Whatever a caller hands over, a parser reads it or says what is wrong; nothing else is raised."""

import json
import operator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.generated import examples
from zae_limiter import Limit, SyncRepository, ValidationError, schema
from zae_limiter.llm.price_files import MODEL_KEYS, read_prices
from zae_limiter.models.quota_fields import BUDGET_FIELDS, QUOTA_FIELDS
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


LIMIT_FIELDS = st.sampled_from(
    [
        "name", "capacity", "refill_amount", "refill_period_seconds", "concurrent", "lease_ttl",
        *QUOTA_FIELDS, *BUDGET_FIELDS,
    ]
)  # fmt: skip
LIMIT_VALUES = (
    st.sampled_from(
        [
            "rpm",
            "usd",
            1,
            5,
            60,
            "0.5",
            "USD",
            "EUR",
            "month",
            "week",
            "UTC",
            True,
            "06:00",
            [50],
            90,
        ]
    )
    | JSON
)
PRICES = [
    "models:",
    "currency: USD",
    "\n",
    "  ",
    "    ",
    "gpt-4",
    ": ",
    "{input: 1, output: 2}",
    "input: ",
    "output: ",
    "2.50",
    "1e9",
    ".inf",
    "-1",
    "above: [",
    "{tokens: 1000, input: 1, output: 1}",
    "]",
    "batch: ",
    "aliases: [a, b]",
    "<<: *a",
    "&a",
    "!!float",
    "[a]: 1",
    "{",
    '"',
    "\0",
]
PRICE_FIELDS = st.sampled_from(
    [
        "input_cost_per_token",
        "output_cost_per_token",
        "input_cost_per_token_above_128k_tokens",
        "cache_read_input_token_cost",
        "input_cost_per_token_batches",
        "output_cost_per_token_batches",
        "litellm_provider",
        "mode",
        "tiered_pricing",
    ]
)
RANGES = st.fixed_dictionaries(
    {"range": st.lists(st.integers() | st.floats(), max_size=2) | JSON},
    optional={"input_cost_per_token": st.floats(0, 1), "output_cost_per_token": JSON},
)
PRICE_VALUES = (
    st.sampled_from([0, 1e-6, "1e-6", "x", "xai", "chat", "embedding", -1, 1e400])
    | st.lists(RANGES, max_size=2)
    | JSON
)

LITELLM_PRICES = st.dictionaries(PRICE_FIELDS, PRICE_VALUES, max_size=3).map(
    {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}.__or__
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


@examples(100)
@given(
    st.text("u1/:~%é💥 _", max_size=8) | ANY_TEXT,
    st.text("1/:.@+-", max_size=5).map("api{}".format),
)
def test_keys(entity_id, resource):
    if refusal(lambda: (check_entity_id(entity_id), check_resource(resource))) is None:
        key = schema.pk_bucket("ns", entity_id, resource, 3)
        assert schema.parse_bucket_pk(key) == ("ns", entity_id, resource, 3)


@examples(100)
@given(words(NOTATION))
def test_limits(text):
    if refusal(lambda: Limit.parse(text)) is None:
        limit = Limit.parse(text)
        assert Limit.parse(str(limit)) == limit


RATES = {"name": "rpm", "capacity": 5, "refill_amount": 5, "refill_period_seconds": 60}
KINDS = st.sampled_from(
    [
        {},
        RATES,
        {"name": "slots", "concurrent": 5},
        {"name": "rpm", "quota": 5, "per": "month", "zone": "UTC"},
        {"name": "rpm", "quota": 5, "per": "month", "zone": "UTC", "hold_ttl": 90, "soft": True},
        {"name": "usd", "budget": "0.5", "after_first_use": 60},
    ]
)


@examples(200)
@given(st.builds(operator.or_, KINDS, st.dictionaries(LIMIT_FIELDS, LIMIT_VALUES, max_size=3)))
def test_documents_of_limits(document):
    if refusal(lambda: Limit.from_dict(document)) is None:
        limit = Limit.from_dict(document)
        assert Limit.from_dict(json.loads(json.dumps(limit.to_dict()))) == limit
        assert Limit.parse(str(limit)) == limit


@examples(100)
@given(words(URLS))
def test_urls(text):
    assert "user:secret@" not in (refusal(lambda: parse_url(text)) or masked_url(text))


@given(words(YAML))
def test_manifests(text):
    refusal(lambda: read_yaml(text, "limits.yaml"))


@given(st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_documents_of_manifests(document):
    refusal(lambda: read_document(document, "limits.json"))


def assert_prices_are_prices(table):
    """Fail if a price is below zero, for which usage would be paid out."""
    for model in table.models.values():
        lists = [model.standard, *([] if model.batch is None else [model.batch])]
        used = [each for one in lists for each in (one.usual, *(t.prices for t in one.tiers))]
        assert all(price >= 0 for prices in used for price in prices)


@pytest.fixture(scope="module")
def price_file(tmp_path_factory):
    """Return a function that reads a price file with this text."""
    path = tmp_path_factory.mktemp("prices") / "prices"

    def read(text):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return read_prices(str(path))

    return read


OWN_PRICES = st.dictionaries(
    st.sampled_from(MODEL_KEYS), st.sampled_from([0, 1, "2.50", -1, ["a"]]) | JSON, max_size=4
).map({"input": 1, "output": 2}.__or__)


@examples(150)
@given(
    words(PRICES)
    | st.dictionaries(ANY_TEXT, OWN_PRICES | JSON, max_size=3).map(
        lambda models: f"# not LiteLLM's\n{json.dumps({'models': models})}"
    )
)
def test_price_files(price_file, text):
    if refusal(lambda: price_file(text)) is None:
        assert_prices_are_prices(price_file(text))


@examples(100)
@example(document={"m": {"input_cost_per_token": 1, "output_cost_per_token": 1, "mode": []}})
@given(document=st.dictionaries(ANY_TEXT, LITELLM_PRICES | JSON, max_size=5))
def test_price_files_of_litellm(price_file, document):
    """A model whose prices cannot be read is not free: it has no prices."""
    text = json.dumps(document)
    if refusal(lambda: price_file(text)) is None:
        table = price_file(text)
        assert_prices_are_prices(table)
        assert {*table.models, *table.unpriced} <= {*document, *table.aliases}


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
