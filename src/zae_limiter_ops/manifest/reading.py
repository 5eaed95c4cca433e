"""Read manifests from YAML or from documents, and collect every mistake with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from zae_limiter.bounded_json import is_deeper, too_deep
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import (
    CONCURRENT_PLACES,
    MAX_LIMITS,
    Limit,
    places_of,
    refuse_cron,
)
from zae_limiter.models.notation import NEVER, parse_limit, parse_period
from zae_limiter.models.quota_fields import BUDGET_FIELDS, QUOTA_FIELDS, quota_from
from zae_limiter.models.switches import Switch, SwitchMode, parse_switch
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    check_entity_id,
    check_namespace,
    check_resource,
    check_resource_or_default,
)
from zae_limiter_ops.manifest.declarations import (
    DEFAULT_PERIOD,
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)
from zae_limiter_ops.manifest.merging import merge
from zae_limiter_ops.manifest.problems import ManifestError, Path, Problem, suggestion
from zae_limiter_ops.manifest.targets import wanted_settings

if TYPE_CHECKING:
    from zae_limiter_ops.manifest.yaml_text import Places

T = TypeVar("T")

MANIFEST_KEYS = ("namespace", "system", "resources", "entities")
SYSTEM_KEYS = ("limits", "on_unavailable")
RESOURCE_KEYS = ("limits", "mode")
ENTITY_KEYS = ("resources", "limits", "mode", "parent", "cascade", "registered")
LIMIT_KEYS = ("capacity", "burst", "refill_amount", "refill_period", "soft")
SLOT_KEYS = ("concurrent", "lease_ttl", "soft")
EXACT_DIGITS = 15  # a float has at least so many digits of the number that was written
DECLARES_NOTHING = (
    "declares no setting, so an apply would delete all that earlier manifests declared; declare at "
    "least one"
)
MAX_DIGITS = 30  # more than a limit may have, and few enough for int()


def read_files(texts: Sequence[tuple[str, str]]) -> LimitsManifest:
    """Read several files as one manifest; ``texts`` are pairs of a file's name and its YAML.

    A key that a mapping has twice is a mistake, and so is a target that two files declare.
    """
    from zae_limiter_ops.manifest.yaml_text import load  # the functions have no PyYAML

    problems: list[Problem] = []
    parts = []
    for source, text in texts:
        loaded = load(text, source)
        problems += loaded.problems
        if loaded.document is not None or not loaded.problems:
            reader = _Reader(source, loaded.places, problems)
            parts.append((reader.manifest(loaded.document), reader.report))
    manifest = merge(parts)
    _raise_all(problems)
    return _refuse_empty(manifest, texts[0][0] if len(texts) == 1 else "manifest")


def read_yaml(text: str, source: str) -> LimitsManifest:
    return read_files([(source, text)])


def read_document(document: Mapping[str, Any], source: str) -> LimitsManifest:
    """Read a document; numbers and booleans may be text, as CloudFormation sends them."""
    if is_deeper(document):
        raise ManifestError([Problem(source, (), 0, 0, too_deep())])
    problems: list[Problem] = []
    manifest = _Reader(source, None, problems).manifest(document)
    _raise_all(problems)
    return _refuse_empty(manifest, source)


def _refuse_empty(manifest: LimitsManifest, source: str) -> LimitsManifest:
    """Raise if nothing is declared: an apply would delete everything that is managed."""
    if not wanted_settings(manifest):
        raise ManifestError([Problem(source, (), 0, 0, DECLARES_NOTHING)])
    return manifest


def _raise_all(problems: Iterable[Problem]) -> None:
    if problems:
        raise ManifestError(sorted(problems, key=_place))


def _place(problem: Problem) -> tuple[str, int, int]:
    return problem.source, problem.line, problem.column


class _Reader:
    """Turns a document into declarations. Mistakes are added to ``problems``; reading continues."""

    def __init__(self, source: str, places: Places | None, problems: list[Problem]) -> None:
        self._source = source
        self._places = places
        self._problems = problems

    def manifest(self, document: object) -> LimitsManifest:
        """Return the manifest of a document; parts with mistakes are missing or incomplete."""
        keys = self._mapping({} if document is None else document, (), MANIFEST_KEYS)
        namespace, system = keys.get("namespace"), None
        if namespace is not None:
            namespace = self._checked(check_namespace, _text(namespace), ("namespace",))
        if keys.get("system") is not None:
            system = self._system(keys["system"], ("system",))
        resources = self._named(keys, "resources", (), check_resource, self._resource)
        entities = self._named(keys, "entities", (), check_entity_id, self._entity)
        self._check_parents(entities)
        return LimitsManifest(namespace, system, resources, entities)

    def _system(self, value: object, path: Path) -> SystemDecl:
        keys = self._mapping(value, path, SYSTEM_KEYS)
        policy = keys.get("on_unavailable")
        if policy is not None:
            policy = self._checked(OnUnavailable.parse, policy, (*path, "on_unavailable"))
        return SystemDecl(self._limits(keys.get("limits"), (*path, "limits")), policy)

    def _resource(self, value: object, path: Path) -> ResourceDecl:
        before = len(self._problems)
        keys = self._mapping(value, path, RESOURCE_KEYS)
        limits = self._limits(keys.get("limits"), (*path, "limits"))
        mode = self._mode(keys, path)
        if not limits and mode is None and before == len(self._problems):
            self.report(path, "has no limits; add a limit or a mode, or remove the entry")
        return ResourceDecl(limits, mode)

    def _mode(self, keys: Mapping[str, Any], path: Path) -> Switch | None:
        """Read a mode such as ``shadow``, or ``deny until 2026-12-01T00:00:00Z``."""
        if keys.get("mode") is None:
            return None
        mode = self._checked(parse_switch, keys["mode"], (*path, "mode"))
        is_of_resource = path[0] == "resources"
        if mode is not None and is_of_resource and mode.mode is SwitchMode.ENFORCE:
            if mode.until_ms is not None:
                self.report((*path, "mode"), "enforce is the mode of every resource; it has no end")
            return Switch(SwitchMode.ENFORCE)
        return mode

    def _entity(self, value: object, path: Path) -> EntityDecl:
        if value is None or value == {}:  # an empty entry can only ask for the registration
            return EntityDecl(registered=True)
        before = len(self._problems)
        keys = self._mapping(value, path, ENTITY_KEYS)
        resources = self._named(keys, "resources", path, check_resource_or_default, self._resource)
        if "limits" in keys:  # short for the limits of the resource _default_
            limits = self._limits(keys["limits"], (*path, "limits"))
            if DEFAULT_RESOURCE in resources and resources[DEFAULT_RESOURCE].limits:
                self.report(
                    (*path, "limits"),
                    "means the same as the limits of resource _default_; keep one of the two",
                )
            if limits:
                default = resources.get(DEFAULT_RESOURCE, ResourceDecl())
                resources = {**resources, DEFAULT_RESOURCE: replace(default, limits=limits)}
        mode = self._mode(keys, path)  # short for the mode of the resource _default_
        if mode is not None:
            default = resources.get(DEFAULT_RESOURCE, ResourceDecl())
            if default.mode is not None:
                self.report(
                    (*path, "mode"),
                    "means the same as the mode of resource _default_; keep one of the two",
                )
            resources = {**resources, DEFAULT_RESOURCE: replace(default, mode=mode)}
        parent = keys.get("parent")
        if parent is not None:
            parent = self._checked(check_entity_id, _text(parent), (*path, "parent"))
        cascade = self._flag(keys, "cascade", path)
        if cascade and keys.get("parent") is None:
            self.report((*path, "cascade"), "needs a parent to cascade to")
        entity = EntityDecl(resources, parent, cascade, self._flag(keys, "registered", path))
        if entity.has_place and entity.registered is False:
            self.report(
                (*path, "registered"),
                "must be true or left out, because the entity has a parent or cascade",
            )
        is_empty = not (entity.resources or entity.has_place or entity.registered is not None)
        if is_empty and before == len(self._problems):
            self.report(path, "declares nothing; add limits or a parent, or leave the entry empty")
        return entity

    def _flag(self, keys: Mapping[str, Any], key: str, path: Path) -> bool | None:
        flag = keys.get(key)
        if isinstance(flag, str) and flag.lower() in ("true", "false"):
            flag = flag.lower() == "true"  # CloudFormation sends booleans as text
        if flag is None or isinstance(flag, bool):
            return flag
        self.report((*path, key), f"must be true or false, not {flag!r}")
        return None

    # --- limits

    def _limits(self, value: object, path: Path) -> dict[str, LimitDecl]:
        if value is None:
            return {}
        declared = self._mapping(value, path, None)
        limits = {}
        for name, parameters in declared.items():
            limit = self._limit(name, parameters, (*path, name))
            if limit is not None:
                limits[name] = limit
        places = sum(places_of(limit.to_limit(name)) for name, limit in limits.items())
        if max(len(declared), places) > MAX_LIMITS:
            self.report(
                path,
                f"has {len(declared)} limits; at most {MAX_LIMITS} are possible, and one on calls "
                f"in flight counts as {CONCURRENT_PLACES}",
            )
        return limits

    def _limit(self, name: str, value: object, path: Path) -> LimitDecl | None:
        """Read a rate as ``{capacity: …}``, or in the notation of ``-l``: ``1000/min:1500``.

        A limit on calls in flight is ``{concurrent: …}``, or ``20/concurrent:60s``.
        """
        if isinstance(value, str | int) and not isinstance(value, bool):
            limit = self._checked(parse_limit, f"{name}:{value}", path)
            return None if limit is None else LimitDecl.of(limit)
        before = len(self._problems)
        if isinstance(value, Mapping) and ("quota" in value or "budget" in value):
            return self._quota(name, value, path)
        has_slots = isinstance(value, Mapping) and value.get("concurrent") is not None
        keys = dict(self._mapping(value, path, SLOT_KEYS if has_slots else LIMIT_KEYS))
        soft = self._flag(keys, "soft", path)
        keys.pop("soft", None)
        if not has_slots and keys.get("capacity") is None and before == len(self._problems):
            self.report(path, "has no capacity; add this key, which every rate must have")
        numbers = {
            key: self._number(key, number, (*path, key))
            for key, number in keys.items()
            if number is not None
        }
        if before != len(self._problems):
            return None
        declared = LimitDecl(**{"refill_period": DEFAULT_PERIOD, **numbers})
        limit = self._checked(declared.to_limit, name, path)
        if limit is not None and soft:
            return LimitDecl.of(replace(limit, soft=True))
        return None if limit is None else declared

    def _quota(self, name: str, value: Mapping[str, Any], path: Path) -> LimitDecl | None:
        """Read a quota as ``{quota: …, per: month, …}``, or a budget as ``{budget: …, …}``."""
        known, before = BUDGET_FIELDS if "budget" in value else QUOTA_FIELDS, len(self._problems)
        if "cron" in value:
            self._checked(refuse_cron, value["cron"], (*path, "cron"))
            return None
        keys = self._mapping(value, path, known)
        if "soft" in keys:
            keys["soft"] = bool(self._flag(keys, "soft", path))
        amount = keys.get("budget")
        if isinstance(amount, float) and not _is_exact(amount):
            self.report((*path, "budget"), "has more digits than YAML keeps; write it in quotes")
        if before != len(self._problems):
            return None
        limit = self._checked(_quota_of, {"name": name, **keys}, path)
        return None if limit is None else LimitDecl.of(limit)

    def _number(self, key: str, value: object, path: Path) -> Any:
        """Read a whole number above zero, or its text; a period may be ``90s`` or ``hour``."""
        digits = value.replace("_", "") if isinstance(value, str) else ""
        if digits.isdecimal() and len(digits) <= MAX_DIGITS:
            value = int(digits)
        if key in ("refill_period", "lease_ttl") and isinstance(value, str):
            return self._checked(parse_period, value, path)
        if type(value) is not int or value <= 0:
            self.report(path, f"must be a whole number above zero, not {value!r}")
        return value

    # --- entities

    def _check_parents(self, entities: Mapping[str, EntityDecl]) -> None:
        """Report entities that are their own ancestors."""
        checked: set[str] = set()
        for entity_id in entities:
            trail: set[str] = set()
            ancestor: str = entity_id
            while ancestor in entities and ancestor not in checked and ancestor not in trail:
                trail.add(ancestor)
                ancestor = entities[ancestor].parent or ""
            if ancestor in trail:
                path = ("entities", ancestor, "parent")
                self.report(path, "makes the entity its own ancestor")
            checked.update(trail)

    # --- helpers

    def _named(
        self,
        keys: Mapping[str, Any],
        key: str,
        path: Path,
        check: Callable[[object], str],
        read: Callable[[object, Path], T],
    ) -> dict[str, T]:
        """Read each entry of a section whose keys are names."""
        value = keys.get(key)
        section = self._mapping({} if value is None else value, (*path, key), None)
        for name in section:
            self._checked(check, name, (*path, key, name))
        return {name: read(inside, (*path, key, name)) for name, inside in section.items()}

    def _mapping(
        self, value: object, path: Path, allowed: tuple[str, ...] | None
    ) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self.report(path, f"must be a mapping, not {_kind(value)}")
            return {}
        mapping = {}
        for key, inside in value.items():
            name = str(_text(key))
            if allowed is not None and name not in allowed:
                self.report((*path, name), f"is not known here; {suggestion(name, allowed)}")
            else:
                mapping[name] = inside
        return mapping

    def _checked(self, check: Callable[[Any], T], value: object, path: Path) -> T | None:
        try:
            return check(value)
        except ValidationError as error:
            self.report(path, f"{error.reason} (got {value!r})")
            return None

    def report(self, path: Path, reason: str) -> None:
        """Add a mistake at the place of a key."""
        line, column = (0, 0) if self._places is None else self._places.of(path)
        self._problems.append(Problem(self._source, path, line, column, reason))


def _text(value: object) -> object:
    """Return a number as text: an unquoted name may be a number in a document."""
    return str(value) if type(value) is int else value


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    return "a list" if isinstance(value, list) else f"{type(value).__name__} {value!r}"


def _quota_of(fields: Mapping[str, Any]) -> Limit:
    """Return a quota or budget from fields whose numbers may be text."""
    return quota_from({key: _plain_value(key, value) for key, value in fields.items()})


def _is_exact(number: float) -> bool:
    """Tell whether the shortest text of a float is certainly the number that was written."""
    return len(Decimal(repr(number)).as_tuple().digits) <= EXACT_DIGITS


def _plain_value(key: str, value: object) -> object:
    """Return a field of a quota; numbers may be text, and an amount of money may be a float.

    YAML reads 12.50 as a float; its shortest text is the number that was written.
    """
    if key == "budget" and isinstance(value, float):
        return repr(value)
    if key == "thresholds" and isinstance(value, list):
        return [_number_of_text(each) for each in value]
    if key in ("quota", "every", "hold_ttl", "on", "after_first_use"):
        value = _number_of_text(value)
        if key == "hold_ttl" and isinstance(value, str):
            return None if value == NEVER else parse_period(value)
    return value


def _number_of_text(value: object) -> object:
    """Return a whole number that is text as a number: CloudFormation sends numbers as text."""
    digits = value.replace("_", "") if isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else value
