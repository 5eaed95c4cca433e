"""Manifests that are nested without end or too large are refused before they are parsed."""

import json

import pytest

from tests.ops.cli.terminal import run
from zae_limiter.bounded_json import MAX_DEPTH, parse_bounded
from zae_limiter.clock import Deadline
from zae_limiter_ops.manifest import LimitsManifest, ManifestError
from zae_limiter_ops.manifest.yaml_text import MAX_CHARACTERS
from zae_limiter_provisioner import actions

MANY = 25_000
DEEP_TEXTS = {
    "lists": "[" * MANY,
    "closed lists": "[" * MANY + "]" * MANY,
    "mappings": '{"a":' * MANY + "1" + "}" * MANY,
    "unquoted mappings": "{a: " * MANY,
    "items of items": "- " * MANY,
    "keys of keys": "? " * MANY,
    "indented": "".join(f"{' ' * level}a:\n" for level in range(1500)),
    "aliases of aliases": "a0: &a0 [1]\n"
    + "".join(f"a{number}: &a{number} [*a{number - 1}]\n" for number in range(1, 3000)),
    "an alias of itself": "a: &a [*a]",
}


@pytest.mark.parametrize("kind", DEEP_TEXTS)
def test_a_manifest_nested_without_end_is_a_mistake_with_its_place(kind, tmp_path):
    file = tmp_path / "deep.yaml"
    file.write_text(DEEP_TEXTS[kind])
    ran = run("limits", "validate", "-f", file)  # in a process of its own, which it could end
    assert ran.returncode == 2, ran
    assert "is nested more than" in ran.stderr
    assert f"{file}:" in ran.stderr
    with pytest.raises(ManifestError, match="nested more than"):
        LimitsManifest.from_yaml(DEEP_TEXTS[kind])


def test_what_a_manifest_can_declare_is_far_from_the_bound():
    limit = {"rpm": {"capacity": 1, "refill_period": 60}}
    document = {"entities": {"a": {"parent": "b", "resources": {"r": {"limits": limit}}}}}
    assert LimitsManifest.from_yaml(json.dumps(document)).entities["a"].parent == "b"
    assert LimitsManifest.from_dict(document).entities["a"].parent == "b"


def test_a_text_that_is_too_long_is_not_parsed():
    ran = run("limits", "validate", "-f", "/dev/zero")  # which has no end
    assert ran.returncode == 2, ran
    assert "has more than" in ran.stderr
    assert "divide it" in ran.stderr
    with pytest.raises(ManifestError, match="has more than"):
        LimitsManifest.from_yaml("#" * (MAX_CHARACTERS + 1))


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.each_value_once
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
@pytest.mark.parametrize(
    "document",
    [
        lambda inside: {"entities": inside},
        lambda inside: {"entities": {"a": {"parent": inside}}},
        lambda inside: {"resources": {"a": {"limits": {"rpm": {"capacity": inside}}}}},
        lambda inside: {"namespace": inside},
    ],
)
def test_a_document_nested_without_end_is_a_mistake(document, levels):
    with pytest.raises(ManifestError, match="nested more than"):
        LimitsManifest.from_dict(document(nested(levels)))


@pytest.mark.parametrize(
    "manifest", ["[" * MANY, '{"a":' * MANY, '{"a":' * MANY + "1" + "}" * MANY]
)
def test_the_function_answers_a_manifest_nested_without_end(manifest):
    answer = actions.answer({"action": "plan", "manifest": manifest}, "table", Deadline(0))
    assert answer["error"]["kind"] in ("ValidationError", "ManifestError")
    assert "nested more than" in answer["error"]["message"]


@pytest.mark.parametrize(
    "payload", [{"action": nested(MANY)}, {"action": "plan", "manifest": nested(MANY)}]
)
def test_the_function_answers_a_payload_nested_without_end(payload):
    answer = actions.answer(payload, "table", Deadline(0))
    assert answer["error"]["kind"] == "ValidationError"
    assert "payload: is nested more than 32 levels deep" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 33, "nested more than 32 levels"),
        ("[" * 33 + "]" * 33, "nested more than 32 levels"),
        ("[[" * 10 + "]]" * 10 + " ", None),
        ('"' + "[" * 50 + '"', None),
        (r'"\"' + "[" * 50 + '"', None),
        ('"' + "[" * 50, "Unterminated string"),
        ('"' + r"\"" * 50_000, "Unterminated string"),
        ("[1, 2", "Expecting"),
        (" " * 2000, "more than 1,000 characters"),
    ],
)
def test_json_is_bounded_before_it_is_parsed(text, reason):
    longest = 1000 if text.isspace() else 200_000
    if reason is None:
        assert parse_bounded(text, longest=longest) == json.loads(text)
    else:
        with pytest.raises(ValueError, match=reason):
            parse_bounded(text, longest=longest)
