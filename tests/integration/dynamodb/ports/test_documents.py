"""Small documents."""

import pytest

from tests.integration.dynamodb.ports.world import NS
from zae_limiter import schema
from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import s
from zae_limiter.items.stored.keys import Key


async def test_documents_stand_where_they_are_documented(ports, raw):
    await ports.documents.put("_", "version", {"schema": 1})
    await ports.documents.put(NS, "provisioner", {"managed": []})
    await ports.documents.put(NS, "else", {})
    assert raw.get(Key("_/SYSTEM#", "#VERSION"))["document"] == s('{"schema":1}')
    index_key = raw.get(Key("ns-1/SYSTEM#", "#PROVISIONER"))["GSI4PK"]
    assert index_key == s(schema.gsi4_pk_namespace(NS, "ns-1/SYSTEM##PROVISIONER"))
    assert raw.get(Key("ns-1/SYSTEM#", "#RECORD#else")) is not None
    assert await ports.documents.get(NS, "version") is None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"": {"": [None, True, 1.5, 1e300, -0.0, 2**70]}, "PK": "x", "SK": 5, "ü": "\ud800"},
        {"long": "x" * 300_000},
    ],
)
async def test_any_document_is_read_back(ports, document):
    await ports.documents.put(NS, "provisioner", document)
    assert await ports.documents.get(NS, "provisioner") == document


async def test_a_document_that_no_item_can_hold_is_refused(ports):
    with pytest.raises(ValidationError) as caught:
        await ports.documents.put(NS, "provisioner", {"long": "x" * 400_000})
    assert caught.value.field == "document"


async def test_a_damaged_document_is_an_error_and_can_be_replaced(ports, raw):
    raw.put({**keys.record(NS, "provisioner").attributes, "document": s("{")})
    with pytest.raises(RateLimiterUnavailable, match="damaged"):
        await ports.documents.get(NS, "provisioner")
    await ports.documents.put(NS, "provisioner", {})
    assert await ports.documents.get(NS, "provisioner") == {}
