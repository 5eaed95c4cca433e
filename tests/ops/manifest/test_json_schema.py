"""The JSON Schema accepts and refuses the same manifests as the reader, within its means."""

import json
import re
from importlib.resources import files

import pytest

from zae_limiter.models.limit import MAX_LIMITS, MAX_PERIOD_SECONDS, MAX_TOKENS
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ManifestError

SCHEMA = json.loads(files("zae_limiter_ops.manifest").joinpath("schema.json").read_text("utf-8"))
TYPES = {
    "object": dict,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "number": float,
}
NO_RULES = {"$schema", "$id", "$defs", "title", "description"}


def is_valid(schema, value):
    """The part of JSON Schema that ours uses; an unknown keyword is an error."""
    rules = {
        "$ref": lambda ref: is_valid(SCHEMA["$defs"][ref.rpartition("/")[2]], value),
        "type": lambda types: _has_type(types, value),
        "enum": lambda values: value in values,
        "anyOf": lambda schemas: any(is_valid(each, value) for each in schemas),
        "not": lambda inner: not is_valid(inner, value),
        "pattern": lambda text: not isinstance(value, str) or re.search(text, value),
        "minLength": lambda least: not isinstance(value, str) or len(value) >= least,
        "maxLength": lambda most: not isinstance(value, str) or len(value) <= most,
        "minimum": lambda least: not _has_type("integer", value) or value >= least,
        "maximum": lambda most: not _has_type("integer", value) or value <= most,
        "minProperties": lambda least: not isinstance(value, dict) or len(value) >= least,
        "maxProperties": lambda most: not isinstance(value, dict) or len(value) <= most,
        "required": lambda names: not isinstance(value, dict) or set(names) <= set(value),
        "propertyNames": lambda inner: all(is_valid(inner, name) for name in _items(value)),
        "properties": lambda inner: all(
            is_valid(inner[name], each) for name, each in _items(value).items() if name in inner
        ),
        "additionalProperties": lambda inner: all(
            inner is not False and is_valid(inner, each)
            for name, each in _items(value).items()
            if name not in schema.get("properties", {})
        ),
    }
    return all(rules[name](rule) for name, rule in schema.items() if name not in NO_RULES)


def _items(value):
    return value if isinstance(value, dict) else {}


def _has_type(types, value):
    kinds = [types] if isinstance(types, str) else types
    return any(type(value) is TYPES[kind] for kind in kinds)


def limit(value):
    return {"resources": {"gpt-4": {"limits": {"rpm": value}}}}


ACCEPTED = [
    {"namespace": "prod", "system": None, "resources": None, "entities": {"u": None}},
    {"namespace": 7, "entities": {"u": {}}},
    {"system": {"on_unavailable": "block"}},
    {"system": {"limits": {"rpm": 5}, "on_unavailable": None}},
    {"resources": {"org/llama3:8b@v1+x": {"limits": {"rpm": 5, "t.p-m_2": "5/min"}}}},
    {"entities": {"any id, 100 %": {"limits": {"rpm": 5}}}},
    {"entities": {"u": {"parent": "team", "cascade": True}}},
    {"entities": {"u": {"parent": 7, "cascade": "false"}}},
    {"entities": {"u": {}, "v": None, "w": {"registered": True, "limits": {"rpm": 5}}}},
    {"entities": {"u": {"parent": "v", "registered": "true"}, "v": {"registered": False}}},
    {"entities": {"u": {"resources": {"_default_": {"limits": {"rpm": 5}}}}}},
    {"resources": {"gpt-4": {"mode": "deny until 2026-12-01T00:00:00Z"}}},
    {"entities": {"u": {"mode": "enforce", "resources": {"gpt-4": {"mode": "bypass"}}}}},
    limit({"capacity": 5, "burst": 6, "refill_amount": 7, "refill_period": 8}),
    limit({"capacity": "5", "burst": None, "refill_period": "90s"}),
    limit({"capacity": MAX_TOKENS, "refill_period": MAX_PERIOD_SECONDS}),
    *map(limit, ["5", "1_000/hour:2_000", "10:20", "1/90s", 3]),
    limit({"quota": 5, "per": "month", "zone": "Europe/Berlin", "on": 31, "at": "06:00"}),
    limit({"quota": "5", "after_first_use": "5h", "hold_ttl": None, "thresholds": []}),
    limit({"budget": "12.50", "currency": "EUR", "per": "week", "on": "sun", "soft": True}),
    limit({"budget": 12.5, "per": "day", "every": 2, "hold_ttl": "10m", "thresholds": [50, 90]}),
    limit({"capacity": 5, "soft": True}),
    limit({"concurrent": 5, "soft": True}),
    limit("5/concurrent:9s,soft"),
    *map(limit, ["1M/month @ Europe/Berlin", "1M/month@UTC,on=31,soft,warn=50+80+100"]),
    *map(limit, ["500k/5h @ first-use", "250USD/month @ America/New_York", "100/min,soft"]),
    limit("12.50EUR/2weeks@UTC,on=sun,hold=10m"),
]
REFUSED = [
    limit({"quota": 5, "per": "fortnight"}),
    limit({"quota": 5, "per": "day", "currency": "USD"}),
    limit({"budget": "5", "capacity": 5, "per": "day"}),
    limit("1M/month @"),
    [],
    "text",
    5,
    {"sytem": {}},
    {"namespace": "my app"},
    {"namespace": "x" * 65},
    {"system": []},
    {"system": {"on_unavailable": "maybe"}},
    {"system": {"limit": {}}},
    {"resources": {"_default_": {"limits": {"rpm": 5}}}},
    {"resources": {"a b": {"limits": {"rpm": 5}}}},
    {"resources": {"x" * 129: {"limits": {"rpm": 5}}}},
    {"resources": {"gpt-4": {}}},
    {"resources": {"gpt-4": {"limits": {}}}},
    {"resources": {"gpt-4": {"limits": [5]}}},
    {"resources": {"gpt-4": {"mode": "off"}}},
    {"resources": {"gpt-4": {"mode": False}}},
    {"system": {"mode": "deny"}},
    {"entities": {"u": {"mode": "deny until "}}},
    {"resources": {"gpt-4": {"limits": {f"l{n}": 5 for n in range(MAX_LIMITS + 1)}}}},
    {"resources": {"gpt-4": {"limits": {"wcu": 5}}}},
    {"resources": {"gpt-4": {"limits": {"1st": 5}}}},
    {"resources": {"gpt-4": {"limits": {"x" * 65: 5}}}},
    {"entities": {"a#b": {"limits": {"rpm": 5}}}},
    {"entities": {"$x": {"limits": {"rpm": 5}}}},
    {"entities": {" x": {"limits": {"rpm": 5}}}},
    {"entities": {"": {"limits": {"rpm": 5}}}},
    {"entities": {"x" * 257: {"limits": {"rpm": 5}}}},
    {"entities": {"u": []}},
    {"entities": {"u": {"registered": 1}}},
    {"entities": {"u": {"parents": "t"}}},
    {"entities": {"u": {"parent": "a#b"}}},
    {"entities": {"u": {"parent": True}}},
    {"entities": {"u": {"parent": "t", "cascade": "maybe"}}},
    {"entities": {"u": {"parent": "t", "cascade": 1}}},
    *map(limit, [0, -1, 1.5, True, None, "", "x", "5/", "5/min:", "-5", [], {}]),
    limit({"burst": 5}),
    limit({"capacity": 0}),
    limit({"capacity": 1.5}),
    limit({"capacity": True}),
    limit({"capacity": "many"}),
    limit({"capacity": MAX_TOKENS + 1}),
    limit({"capacity": 5, "rate": 5}),
    limit({"capacity": 5, "refill_period": "soon!"}),
    limit({"capacity": 5, "refill_period": MAX_PERIOD_SECONDS + 1}),
]


@pytest.mark.parametrize("manifest", ACCEPTED, ids=str)
def test_what_the_reader_accepts_is_valid(manifest):
    LimitsManifest.from_dict(manifest)
    assert is_valid(SCHEMA, manifest)


@pytest.mark.parametrize("manifest", REFUSED, ids=lambda value: str(value)[:60])
def test_what_the_reader_refuses_is_not_valid(manifest):
    with pytest.raises(ManifestError):
        LimitsManifest.from_dict(manifest)
    assert not is_valid(SCHEMA, manifest)
