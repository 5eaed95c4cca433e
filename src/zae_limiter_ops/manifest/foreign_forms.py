"""Read limits and entities from the items of tables that other implementations have written.

Two forms are known by their documents. All others are items of an unknown kind.

composite: every key begins with the id of a namespace, and an item holds all limits of a level.

    {ns}/SYSTEM#               #CONFIG               on_unavailable, l_rpm_cp, l_rpm_ra, l_rpm_rp
    {ns}/RESOURCE#{resource}   #CONFIG               l_rpm_cp, …
    {ns}/ENTITY#{entity}       #CONFIG#{resource}    l_rpm_cp, …
    {ns}/ENTITY#{entity}       #META                 parent_id, cascade

per-limit: keys have no namespace, an item holds one limit, and each call says whether it cascades.

    ENTITY#{entity}   #LIMIT#{resource}#{limit}   capacity, burst, refill_amount, refill_period
    ENTITY#{entity}   #META                       parent_id
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from zae_limiter.dynamodb.foreign import COMPOSITE, PER_LIMIT
from zae_limiter.exceptions import ValidationError
from zae_limiter.items.stored.attributes import Item, Value
from zae_limiter.models.config import ConfigLevel, LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.naming import RESERVED_NAMESPACE, check_entity_id, check_resource_or_default
from zae_limiter_ops.manifest.assembling import SYSTEM_LEVEL, assembled
from zae_limiter_ops.manifest.declarations import LimitsManifest

SCALES = {"tokens": 1, "millitokens": 1000}
# The documents give stored limits of the first form as the fields of a limit, and those of the
# second form in millitokens.
DEFAULT_UNITS = {COMPOSITE: "tokens", PER_LIMIT: "millitokens"}

RESERVED_LIMIT = "wcu"  # counts writes of a bucket item in the composite form; no limit of users
PREFIX, CAPACITY, AMOUNT, PERIOD = "l_", "_cp", "_ra", "_rp"
# Items that follow from the others.
BOOKKEEPING = ("#ENTITY_CONFIG_RESOURCES", "#PROVISIONER", "#RESOURCES", "#VERSION")
# Attributes that are no loss: a manifest has them in another place, or no use for them.
KEYS = ("PK", "SK", "GSI1PK", "GSI1SK", "GSI2PK", "GSI2SK", "GSI3PK", "GSI3SK", "GSI4PK", "GSI4SK")
IMPLIED = frozenset({*KEYS, "config_version", "created_at", "entity_id", "resource", "version"})
DESCRIPTIVE = frozenset({"metadata", "name"})

# Kinds of items, and of entities, that a manifest cannot carry over.
BUCKETS, USAGE, EVENTS, UNKNOWN = "buckets", "usage", "events", "unknown"
DESCRIBED, CASCADES, OTHER_NAMESPACES = "described", "cascades", "namespaces"
DISABLED = "disabled"  # of a level: all its calls are refused
MAX_EXAMPLES = 3  # keys of an unknown kind that are kept


@dataclass(slots=True)
class Found:
    """The settings that were found, and all that a manifest cannot carry over.

    ``problems`` has a line for each setting that is left out. ``left`` counts items by kind,
    ``attributes`` counts unknown attributes, ``unknown`` has the first keys of an unknown kind.
    """

    limits: dict[ConfigLevel, list[Limit]] = field(default_factory=dict)
    policy: OnUnavailable | None = None
    entities: dict[str, Entity] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    broken: set[ConfigLevel] = field(default_factory=set)  # a limit of the level is unreadable

    @property
    def is_empty(self) -> bool:
        """Whether the table has neither limits nor entities in this form."""
        return not (self.limits or self.policy or self.entities or self.problems)

    def manifest(self, namespace: str | None) -> LimitsManifest:
        """Return the manifest of the readable settings.

        A level with one unreadable limit is left out as a whole: without that limit the level would
        allow more than it did.
        """
        configs = {
            level: LevelConfig(tuple(limits))
            for level, limits in self.limits.items()
            if level not in self.broken
        }
        if self.policy is not None:
            system = configs.get(SYSTEM_LEVEL, LevelConfig(()))
            configs[SYSTEM_LEVEL] = system._replace(on_unavailable=self.policy)
        return assembled(namespace, configs, self.entities)

    def add_limits(self, level: ConfigLevel, limits: list[Limit]) -> None:
        """Add limits of a level, and check all limits of the level together."""
        if limits:
            both = [*self.limits.get(level, ()), *limits]
            check_limits(both)
            self.limits[level] = both

    def add_entity(self, item: Item, entity_id: str, cascade: bool) -> None:
        parent = _optional_text(item, "parent_id") or None
        check_entity_id(entity_id)
        if parent is not None:
            check_entity_id(parent, "parent_id")
        self.entities[entity_id] = Entity(entity_id, parent_id=parent, cascade=cascade)
        self.left[DESCRIBED] += any(name in item for name in DESCRIPTIVE)

    def drop_circles(self) -> None:
        """Leave out parents that make an entity its own ancestor: a manifest may not have them."""
        checked: set[str] = set()
        for entity_id in sorted(self.entities):
            trail: set[str] = set()
            ancestor = entity_id
            while ancestor in self.entities and not (ancestor in checked or ancestor in trail):
                trail.add(ancestor)
                ancestor = self.entities[ancestor].parent_id or ""
            if ancestor in trail:
                self.entities[ancestor] = Entity(ancestor)
                self.problems.append(f"the parent of {ancestor!r} makes it its own ancestor")
            checked |= trail

    def note_unknown(self, key: str) -> None:
        """Count an item of an unknown kind."""
        self.left[UNKNOWN] += 1
        if len(self.unknown) < MAX_EXAMPLES:
            self.unknown.append(key)

    def note_disabled(self, item: Item) -> None:
        """Report a level that stops all calls: a manifest of its limits would admit them."""
        if DISABLED in item and item[DISABLED].get("BOOL") is not False:
            self.problems.append(
                f"{_text(item, 'PK')} {_text(item, 'SK')}: is {DISABLED}; stop its calls by the "
                "mode deny"
            )

    def note_attributes(self, item: Item, known: frozenset[str]) -> None:
        """Count the attributes of an item that are neither read nor implied."""
        self.attributes.update(item.keys() - known - IMPLIED)


class CompositeReader:
    """Takes the items of one namespace of a table in composite form."""

    def __init__(self, namespace_id: str, scale: int) -> None:
        self.found = Found()
        self._prefix = f"{namespace_id}/"
        self._scale = scale

    def add(self, item: Item) -> None:
        """Take one item of the table, of any kind and namespace."""
        partition_key, sort_key = _text(item, "PK"), _text(item, "SK")
        kind, _, name = partition_key.removeprefix(self._prefix).partition("#")
        if not partition_key.startswith(self._prefix):
            self._add_other(partition_key)
        elif sort_key == "#CONFIG" and kind == "SYSTEM":
            self._add_level(item, SYSTEM_LEVEL)
        elif sort_key == "#CONFIG" and kind == "RESOURCE" and name:
            self._add_level(item, ConfigLevel(resource=name))
        elif sort_key.startswith("#CONFIG#") and kind == "ENTITY":
            self._add_level(item, ConfigLevel(name, sort_key.removeprefix("#CONFIG#")))
        elif sort_key == "#META" and kind == "ENTITY":
            self._add_entity(item, name)
        elif not _is_left(self.found, kind, sort_key) and not sort_key.startswith(BOOKKEEPING):
            self.found.note_unknown(f"{partition_key} {sort_key}")

    def _add_other(self, partition_key: str) -> None:
        namespace_id, slash, _ = partition_key.partition("/")
        if not slash:
            self.found.note_unknown(partition_key)
        elif namespace_id != RESERVED_NAMESPACE:  # the registry of namespaces was read before
            self.found.left[OTHER_NAMESPACES] += 1

    def _add_level(self, item: Item, level: ConfigLevel) -> None:
        names = _limit_names(item)
        read = [
            f"{PREFIX}{name}{part}"
            for name in (*names, RESERVED_LIMIT)
            for part in (CAPACITY, AMOUNT, PERIOD)
        ]
        self.found.note_attributes(item, frozenset({*read, "on_unavailable", DISABLED}))
        self.found.note_disabled(item)
        if level.is_system and "on_unavailable" in item:
            with _reported(self.found, item):
                self.found.policy = OnUnavailable.parse(_text(item, "on_unavailable"))
        with _reported(self.found, item, level):
            _check_level(level)
            self.found.add_limits(level, [self._limit(item, name) for name in names])

    def _limit(self, item: Item, name: str) -> Limit:
        attribute = f"{PREFIX}{name}"
        return Limit(
            name,
            _tokens(item, attribute + CAPACITY, self._scale),
            _tokens(item, attribute + AMOUNT, self._scale),
            _integer(item, attribute + PERIOD),
        )

    def _add_entity(self, item: Item, entity_id: str) -> None:
        self.found.note_attributes(item, frozenset({"parent_id", "cascade", *DESCRIPTIVE}))
        with _reported(self.found, item):
            self.found.add_entity(item, entity_id, _flag(item, "cascade"))


class PerLimitReader:
    """Takes the items of a table that has an item for each limit."""

    LIMIT = ("capacity", "burst", "refill_amount", "refill_period")

    def __init__(self, scale: int) -> None:
        self.found = Found()
        self._scale = scale

    def add(self, item: Item) -> None:
        """Take one item of the table, of any kind."""
        partition_key, sort_key = _text(item, "PK"), _text(item, "SK")
        kind, _, name = partition_key.partition("#")
        if sort_key == "#META" and kind == "ENTITY":
            self._add_entity(item, name)
        elif sort_key.startswith("#LIMIT#") and kind == "ENTITY":
            resource, _, limit = sort_key.removeprefix("#LIMIT#").rpartition("#")
            self._add_limit(item, ConfigLevel(name, resource), limit)
        elif not _is_left(self.found, kind, sort_key) and sort_key != "#VERSION":
            self.found.note_unknown(f"{partition_key} {sort_key}")

    def _add_limit(self, item: Item, level: ConfigLevel, name: str) -> None:
        self.found.note_attributes(item, frozenset({*self.LIMIT, "limit_name"}))
        with _reported(self.found, item, level):
            _check_level(level)
            rate = _tokens(item, "capacity", self._scale)
            burst = _tokens(item, "burst", self._scale) if "burst" in item else rate
            refill = _tokens(item, "refill_amount", self._scale)
            limit = Limit(name, burst, refill, _integer(item, "refill_period"))
            self.found.add_limits(level, [limit])

    def _add_entity(self, item: Item, entity_id: str) -> None:
        self.found.note_attributes(item, frozenset({"parent_id", *DESCRIPTIVE}))
        with _reported(self.found, item):
            self.found.add_entity(item, entity_id, cascade=False)
            self.found.left[CASCADES] += self.found.entities[entity_id].is_child


Reader = CompositeReader | PerLimitReader


@contextmanager
def _reported(found: Found, item: Item, level: ConfigLevel | None = None) -> Iterator[None]:
    """Note a setting that cannot be carried over, instead of raising."""
    try:
        yield
    except ValidationError as error:
        found.problems.append(f"{_text(item, 'PK')} {_text(item, 'SK')}: {error}")
        if level is not None:
            found.broken.add(level)


def _is_left(found: Found, kind: str, sort_key: str) -> bool:
    """Count an item of a kind that no manifest holds; return False for any other item."""
    if kind == "BUCKET" or sort_key.startswith("#BUCKET#"):
        found.left[BUCKETS] += 1
    elif sort_key.startswith("#USAGE#"):
        found.left[USAGE] += 1
    elif kind == "AUDIT":
        found.left[EVENTS] += 1
    else:
        return False
    return True


def _check_level(level: ConfigLevel) -> None:
    if level.entity_id:
        check_entity_id(level.entity_id)
    if not level.is_system:
        check_resource_or_default(level.resource)


def _limit_names(item: Item) -> list[str]:
    """Return the names of the limits of a level, also of those with missing parts."""
    names = {
        attribute.removeprefix(PREFIX)[: -len(CAPACITY)]
        for attribute in item
        if attribute.startswith(PREFIX) and attribute.endswith((CAPACITY, AMOUNT, PERIOD))
    }
    return sorted(names - {RESERVED_LIMIT})


def _tokens(item: Item, name: str, scale: int) -> int:
    """Return an amount in tokens."""
    amount = _integer(item, name)
    if amount % scale:
        raise ValidationError(name, amount, f"must be a multiple of {scale}, as millitokens are")
    return amount // scale


def _integer(item: Item, name: str) -> int:
    value: Value | None = item.get(name)
    if value is None:
        raise ValidationError(name, None, "is missing")
    try:
        return int(value["N"])
    except (KeyError, ValueError):
        raise ValidationError(name, value, "must be a whole number") from None


def _flag(item: Item, name: str) -> bool:
    """Return a flag; a missing one is False."""
    value = item.get(name, {"BOOL": False})
    if not isinstance(value.get("BOOL"), bool):
        raise ValidationError(name, value, "must be a flag")
    return bool(value["BOOL"])


def _optional_text(item: Item, name: str) -> str | None:
    """Return a text; None if there is none, or null."""
    value = item.get(name)
    if value is None or value.get("NULL"):
        return None
    if not isinstance(value.get("S"), str):
        raise ValidationError(name, value, "must be a text")
    return str(value["S"])


def _text(item: Item, name: str) -> str:
    """Return a text of an item; empty if it has none."""
    text = item.get(name, {}).get("S")
    return text if isinstance(text, str) else ""
