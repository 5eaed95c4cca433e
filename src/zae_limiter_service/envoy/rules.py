"""Rules that map descriptors of Envoy to entities, resources and amounts.

.. code-block:: yaml

    domains:
      gateway:
        namespace: default
        descriptors:
          - match: {api_key: "*", model: gpt-4}
            entity: "{api_key}"
            resource: "{model}"
            amounts: {rpm: 1, tpm: hits}
          - match: {generic_key: health}
            unlimited: true

The first rule whose entries all are in a descriptor counts. Without a file, a descriptor names its
``entity`` and ``resource`` itself, and ``limit`` if that is another one than ``rpm``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from zae_limiter.naming import check_limit_name, check_namespace
from zae_limiter_service.files import Node, read_yaml

ANY = "*"
HITS = "hits"  # stands for the hits of a request in amounts
DEFAULT_LIMIT = "rpm"
ENTITY, RESOURCE, LIMIT = "entity", "resource", "limit"
_TOP = frozenset({"domains"})
_OF_DOMAIN = frozenset({"namespace", "descriptors"})
_OF_RULE = frozenset({"match", "entity", "resource", "amounts", "unlimited"})
_PART = re.compile(r"\{([^{}]*)\}")

Entries = Mapping[str, str]


class Amount(NamedTuple):
    """A fixed amount, or the hits of the request if it is None."""

    fixed: int | None

    def of(self, hits: int) -> int:
        return hits if self.fixed is None else self.fixed


class DescriptorTarget(NamedTuple):
    """The bucket and the amounts that a descriptor asks for."""

    entity: str
    resource: str
    amounts: Mapping[str, Amount]

    @property
    def counted(self) -> str:
        """The limit that the hits count against; the first one if none does."""
        names = [name for name, amount in self.amounts.items() if amount.fixed is None]
        return names[0] if names else next(iter(self.amounts))


class Rule(NamedTuple):
    """One rule. ``entity`` is None if its descriptors are not limited."""

    match: Entries
    entity: str | None
    resource: str
    amounts: Mapping[str, Amount]

    def applies_to(self, entries: Entries) -> bool:
        return all(
            key in entries and value in (ANY, entries[key]) for key, value in self.match.items()
        )

    def target(self, entries: Entries) -> DescriptorTarget | None:
        if self.entity is None:
            return None
        return DescriptorTarget(
            _filled(self.entity, entries), _filled(self.resource, entries), self.amounts
        )


class Domain(NamedTuple):
    namespace: str | None  # None: that of the service
    rules: tuple[Rule, ...]


class Rules(NamedTuple):
    """The rules by domain; None where descriptors name their entity and resource themselves."""

    domains: Mapping[str, Domain] | None = None


class NoRule(Exception):
    """No rule says what a descriptor is about; the message says so."""


def namespace_of(rules: Rules, domain: str, default: str) -> str:
    """Return the namespace of a domain; raise NoRule for an unknown domain."""
    if rules.domains is None:
        return default
    found = rules.domains.get(domain)
    if found is None:
        known = ", ".join(sorted(rules.domains))
        raise NoRule(f"the domain {domain!r} has no rules; known are: {known}")
    return found.namespace or default


def target_of(rules: Rules, domain: str, entries: Entries) -> DescriptorTarget | None:
    """Return what a descriptor asks for; None if it is not limited; raise NoRule if none says."""
    if rules.domains is None:
        return _plain_target(entries)
    for rule in rules.domains[domain].rules:
        if rule.applies_to(entries):
            return rule.target(entries)
    raise NoRule(f"no rule of the domain {domain!r} matches the entries {', '.join(entries)}")


def _plain_target(entries: Entries) -> DescriptorTarget:
    if ENTITY not in entries or RESOURCE not in entries:
        raise NoRule(
            "a descriptor needs the entries 'entity' and 'resource'; --rules FILE maps others"
        )
    amounts = {entries.get(LIMIT, DEFAULT_LIMIT): Amount(None)}
    return DescriptorTarget(entries[ENTITY], entries[RESOURCE], amounts)


def _filled(template: str, entries: Entries) -> str:
    return _PART.sub(lambda part: entries[part[1]], template)


# --- the file


def read_rules(path: Path) -> Rules:
    """Return the rules of a file; raise FileError with the line of a mistake."""
    root = read_yaml(path)
    values = root.mapping(_TOP)
    domains = root.require(values, "domains").mapping()
    return Rules({name: _domain(node) for name, node in domains.items()})


def _domain(node: Node) -> Domain:
    values = node.mapping(_OF_DOMAIN)
    namespace = values["namespace"].checked(check_namespace) if "namespace" in values else None
    rules = tuple(_rule(each) for each in node.require(values, "descriptors").items())
    if not rules:
        raise node.error("descriptors must have at least one rule")
    return Domain(namespace, rules)


def _rule(node: Node) -> Rule:
    values = node.mapping(_OF_RULE)
    match = {key: each.text() for key, each in node.require(values, "match").mapping().items()}
    if not match:
        raise node.error("match must name at least one entry")
    if "unlimited" in values:
        if not values["unlimited"].flag() or len(values) > 2:
            raise values["unlimited"].error("unlimited must be true, and alone with match")
        return Rule(match, None, "", {})
    amounts = {"rpm": Amount(None)}
    if "amounts" in values:
        amounts = _amounts(values["amounts"])
    return Rule(
        match,
        _template(node.require(values, "entity"), match),
        _template(node.require(values, "resource"), match),
        amounts,
    )


def _template(node: Node, match: Entries) -> str:
    text = node.text()
    for part in _PART.findall(text):
        if part not in match:
            known = ", ".join(match)
            raise node.error(f"{{{part}}} is not an entry of match; these are: {known}")
    if "{" in _PART.sub("", text) or "}" in _PART.sub("", text):
        raise node.error("has a brace without its partner")
    return text


def _amounts(node: Node) -> dict[str, Amount]:
    amounts: dict[str, Amount] = {}
    for name, each in node.mapping().items():
        _check_limit(name, each)
        if each.is_whole_number:
            amounts[name] = Amount(each.whole_number())
        elif each.text() == HITS:
            amounts[name] = Amount(None)
        else:
            raise each.error(f"the amount of {name} must be a whole number, or {HITS}")
    if not amounts:
        raise node.error("amounts must name at least one limit")
    return amounts


def _check_limit(name: str, node: Node) -> None:
    try:
        check_limit_name(name)
    except ValueError as error:
        raise node.error(str(error)) from None
