"""Input that must be refused, with the field that the error must name."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from zae_limiter.models.limit import MAX_LIMITS, MAX_TOKENS, Limit

RPM = Limit.per_minute("rpm", 10)
LONE_SURROGATE = "\ud800"  # half a character: JSON can hold it, UTF-8 cannot

ENTITY_IDS: list[Any] = [
    "",
    " ",
    " a",
    "a\n",
    "a\tb",
    "a\0b",
    "a#b",
    "$SYSTEM",
    LONE_SURROGATE,
    "x" * 257,
    "😀" * 226,  # 904 bytes of UTF-8
    None,
    5,
    b"a",
    ["a"],
]
RESOURCES: list[Any] = ["", "a b", "a#b", "_default_", "-a", ":a", "x" * 129, "ü", None, 5, b"a"]
LIMIT_NAMES: list[Any] = ["", "a b", "a#b", "a~b", "-a", "wcu", "WCU", "x" * 65, None, 5]
NAMESPACES: list[Any] = ["", "a b", "a#b", "_", "-a", "x" * 65, "ü", 5, b"a"]
AMOUNTS: list[Any] = [
    -1,
    1.0,
    0.5,
    math.nan,
    math.inf,
    True,
    False,
    "1",
    None,
    Decimal(1),
    [1],
    MAX_TOKENS + 1,
]
POSITIVE: list[Any] = [0, *AMOUNTS]
CONSUMES: list[tuple[Any, str]] = [
    (None, "consume"),
    (5, "consume"),
    ("rpm", "consume"),
    (["rpm"], "consume"),
    ([("rpm", 1)], "consume"),
    ({1: 1}, "consume"),
    ({None: 1}, "consume"),
    ({"tpm": 1}, "consume.tpm"),
    ({"rpm": 1, "wcu": 0}, "consume.wcu"),
    *(({"rpm": amount}, "consume.rpm") for amount in AMOUNTS),
]
NEEDS = [
    (needed, field.replace("consume", "needed")) for needed, field in CONSUMES if needed is not None
]
LIMITS: list[Any] = [
    [],
    RPM,
    "rpm",
    ["rpm"],
    [None],
    [RPM, None],
    [RPM, RPM],
    [RPM, Limit.per_day("rpm", 5)],
    {"rpm": 10},
    5,
    [Limit.per_minute(f"limit-{number}", 1) for number in range(MAX_LIMITS + 1)],
]
NAMESPACE_IDS: list[Any] = ["", None, 5, b"a", object(), LONE_SURROGATE]
PRINCIPALS: list[Any] = [5, b"me", [1], object(), LONE_SURROGATE, "x" * 257]
TTL_MULTIPLIERS: list[Any] = ["x", 1.5, -1, True, math.inf]
POLICIES: list[Any] = ["", "deny", "ALLOW", True, 5]
ENTITIES: list[tuple[dict[str, Any], str]] = [
    ({"parent_id": "key"}, "parent_id"),
    ({"parent_id": ""}, "parent_id"),
    ({"parent_id": "a#b"}, "parent_id"),
    ({"cascade": True}, "cascade"),
    ({"parent_id": "team", "cascade": 1}, "cascade"),
    ({"parent_id": "team", "cascade": None}, "cascade"),
    ({"metadata": "text"}, "metadata"),
    ({"metadata": ["a"]}, "metadata"),
    ({"metadata": {1: "a"}}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {"a": None}}, "metadata"),
    ({"metadata": {"a": LONE_SURROGATE}}, "metadata"),
    *(({"name": name}, "name") for name in (5, b"a", ["a"], object(), LONE_SURROGATE, "x" * 300)),
    ({"principal": 5}, "principal"),
]
