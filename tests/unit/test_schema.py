import pytest

from zae_limiter import schema
from zae_limiter.exceptions import ValidationError


def test_keys_are_as_documented():
    assert schema.pk_bucket("ns", "user-1", "openai/gpt-4", 3) == "ns/BUCKET#user-1#openai/gpt-4#3"
    assert schema.sk_state() == "#STATE"
    assert schema.gsi3_pk_entity("ns", "user-1") == "ns/ENTITY#user-1"
    assert schema.gsi3_sk_bucket("gpt-4", 0) == "BUCKET#gpt-4#0"
    assert schema.pk_system("ns") == "ns/SYSTEM#"
    assert schema.pk_resource("ns", "gpt-4") == "ns/RESOURCE#gpt-4"
    assert schema.pk_entity("ns", "user-1") == "ns/ENTITY#user-1"
    assert schema.sk_config() == "#CONFIG"
    assert schema.sk_config("gpt-4") == "#CONFIG#gpt-4"
    assert schema.sk_entity_config_resources() == "#ENTITY_CONFIG_RESOURCES"
    assert schema.sk_namespace("tenant") == "#NAMESPACE#tenant"
    assert schema.sk_nsid("a7x3kq") == "#NSID#a7x3kq"
    assert schema.sk_provisioner() == "#PROVISIONER"
    assert schema.gsi1_pk_parent("ns", "p") == "ns/PARENT#p"
    assert schema.gsi3_pk_entity_config("ns", "gpt-4") == "ns/ENTITY_CONFIG#gpt-4"
    assert schema.RESERVED_NAMESPACE == "_"


@pytest.mark.parametrize("entity_id", ["user-1", "a/b", "BUCKET", "x@y.z", "a:b", "/", "0"])
@pytest.mark.parametrize(
    "resource",
    [
        "gpt-4",
        "openai/gpt-4/turbo",
        "01-ai/Yi-34B",
        "ft:gpt-4o-mini:acme::x",
        "a@b+c",
        "0",
        "BUCKET",
    ],
)
def test_a_bucket_key_is_taken_apart_again(entity_id, resource):
    pk = schema.pk_bucket("n_s-1", entity_id, resource, 12)
    assert schema.parse_bucket_pk(pk) == ("n_s-1", entity_id, resource, 12)


@pytest.mark.parametrize(
    "pk", ["", "ns/ENTITY#a", "BUCKET#a#b#0", "ns/BUCKET#a#b", "ns/BUCKET#a#b#x"]
)
def test_other_keys_are_refused(pk):
    with pytest.raises(ValidationError, match="not the key of a bucket"):
        schema.parse_bucket_pk(pk)


def test_index_keys_are_partitioned_by_entity():
    """Stored keys: the numbers must never change without another schema version."""
    assert schema.PARTITIONS == 32
    assert schema.gsi2_pk_resource("ns", "gpt-4", "user-1") == "ns/RESOURCE#gpt-4#20"
    assert schema.gsi4_pk_namespace("ns", "user-1") == "ns/ALL#20"
    assert schema.gsi4_pk_namespace("ns", "üser-漢") == "ns/ALL#26"


def test_every_partition_of_an_index_is_listed_once():
    by_resource, everything = schema.gsi2_partitions("ns", "gpt-4"), schema.gsi4_partitions("ns")
    assert len(set(by_resource)) == len(set(everything)) == schema.PARTITIONS
    for number in range(200):
        assert schema.gsi2_pk_resource("ns", "gpt-4", f"user-{number}") in by_resource
        assert schema.gsi4_pk_namespace("ns", f"user-{number}") in everything
