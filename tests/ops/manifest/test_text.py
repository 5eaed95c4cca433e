"""What an export writes is read back as it was, whatever the names look like in YAML."""

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import check_entity_id
from zae_limiter_ops.cli.limits.source import as_yaml
from zae_limiter_ops.manifest import EntityDecl, LimitDecl, LimitsManifest, ResourceDecl
from zae_limiter_ops.manifest.targets import wanted_settings

SPECIAL = (
    "<<", "=", "~", "null", "Null", "yes", "No", "on", "y", "true", "1e3", "1_000", "0x1f", "0o17",
    "0123", "12:30:45", "2024-01-01", "2024-01-01T00:00:00Z", ".inf", ".nan", "-", "--", "---",
    "...", "- a", "? a", "a: b", ": a", ":", "[a", "]", "{a: b}", "&a", "*a", "!a", "!!int 5", "|",
    ">", "%YAML 1.2", "@a", "`a`", "'", '"', '"a"', "a'b",
    "\\", "\\n", "a, b", ",", "a  b", "a" * 256, "a  b " * 50 + "c", "é", "😀", "名前", "x'$(true)",
)  # fmt: skip


def is_id(text):
    try:
        return check_entity_id(text) == text
    except ValidationError:
        return False


ids = st.sampled_from(SPECIAL) | st.text(max_size=60).map(str.strip).filter(is_id)
limits = st.dictionaries(
    st.sampled_from(["rpm", "no", "null", "e1", "y", "on"]),
    st.builds(LimitDecl, st.integers(1, 10**9), st.none() | st.integers(1, 10**9)),
    min_size=1,
    max_size=3,
)
RESOURCES = ("gpt-4", "1e3", "0123", "null", "yes", "2024-01-01", "12:30", "_default_")
one_resource = st.builds(
    lambda name, of: {name: ResourceDecl(of)}, st.sampled_from(RESOURCES), limits
)
resources = st.just({}) | one_resource
entities = st.one_of(
    st.builds(EntityDecl, resources, ids, st.booleans()),
    st.builds(EntityDecl, one_resource),
    st.builds(EntityDecl, resources, registered=st.booleans()),
)


def entries(entity_id, entity):
    return {} if entity.parent == entity_id else {entity_id: entity}


manifests = st.builds(entries, ids, entities)


@given(manifests)
@example({name: EntityDecl(registered=True) for name in SPECIAL})
@example({"child": EntityDecl({}, "<<", True), "<<": EntityDecl(registered=True)})
def test_an_export_is_read_back_as_it_was(declared):
    manifest = LimitsManifest("1e3", None, {}, declared)
    assume(wanted_settings(manifest))
    document = manifest.to_dict()
    assert LimitsManifest.from_yaml(as_yaml(document)) == manifest
    assert LimitsManifest.from_yaml(json.dumps(document)) == manifest
    assert LimitsManifest.from_dict(document) == manifest


@pytest.mark.parametrize("name", SPECIAL)
def test_every_special_name_is_one_of_the_examples(name):
    assert is_id(name)


def test_json_with_escaped_characters_is_read_like_any_other():
    document = {"entities": {"😀": {}, "a\\ud83d": {}, "\\😀": {}}}
    text = json.dumps(document)
    assert "\\ud83d\\ude00" in text
    assert LimitsManifest.from_yaml(text) == LimitsManifest.from_dict(document)


def test_a_plain_merge_key_still_merges():
    text = "resources: {api: {limits: &base {rpm: 5}}, chat: {limits: {<<: *base, tpm: 7}}}"
    read = LimitsManifest.from_yaml(text).resources["chat"].limits
    assert {name: limit.capacity for name, limit in read.items()} == {"rpm": 5, "tpm": 7}
