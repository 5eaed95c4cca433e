"""The managed state: the targets that applies manage, stored in pages of bounded size.

The first page, ``#PROVISIONER``, holds the lease of an apply in progress. A small state is stored
in the first page alone, whose field ``pages`` is then 0. A larger state is spread over the pages
``#PROVISIONER#1`` to ``#PROVISIONER#{pages}``: the name of a resource or entity decides its page.
The number of pages is a power of two and only grows, so a name only ever moves to a higher page.
Pages are written from the last to the first. After an interrupted rewrite, every name is therefore
in at least one page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from zae_limiter_ops.manifest.targets import POLICY, REGISTERED, SYSTEM, Target, TargetKind

Document = dict[str, Any]

FIRST_PAGE = "provisioner"  # the key of its document
PENDING = ""  # the digest of a target that an apply is changing, or was changing when it was killed
PENDING_REGISTRATION = "registering"  # the same for an entity whose place is not managed
INLINE_CHARACTERS = 4000  # each batch of an apply checks the first page and pays for its size
PAGE_CHARACTERS = 100_000  # a store accepts 390,000, but names spread unevenly
MAX_PAGES = 1024  # 100 million characters: more than a million entities


def page_key(number: int) -> str:
    """Return the key of a page's document; 0 is the first page."""
    return f"{FIRST_PAGE}#{number}" if number else FIRST_PAGE


@dataclass(frozen=True, slots=True)
class Managed:
    """The targets that applies manage, with the digest of the setting after the last apply.

    ``registered`` holds the entities that an apply has registered.
    """

    digests: Mapping[Target, str] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()

    def has_placed(self, target: Target) -> bool:
        """Return whether an apply manages, or was about to manage, the parent of an entity."""
        digest = self.digests.get(target)
        return digest not in (None, REGISTERED.digest(), PENDING_REGISTRATION)


class ApplyLease(NamedTuple):
    """The right to change the managed state until a time; the owner extends the lease."""

    owner: str
    until_ms: int
    since: str
    principal: str | None = None

    def to_dict(self) -> Document:
        return self._asdict()

    @classmethod
    def from_state(cls, header: Document | None) -> ApplyLease | None:
        """Return the lease in the first page; None if there is no readable lease."""
        lease: Any = (header or {}).get("lease")
        try:
            return cls(
                str(lease["owner"]), int(lease["until_ms"]), lease["since"], lease["principal"]
            )
        except (KeyError, TypeError, ValueError):
            return None


class StatePages(NamedTuple):
    """The managed state as documents: its fields of the first page, and the other pages."""

    header: Document
    pages: list[Document]  # the first of them is page 1


def encode(managed: Managed, pages_before: int = 0) -> StatePages:
    """Return the documents of a state; ``pages_before`` is the number of its stored pages."""
    system: Document = {}
    resources: dict[str, str] = {}
    modes: dict[str, str] = {}
    entities: dict[str, Document] = {}
    for target, digest in sorted(managed.digests.items()):
        if target in (SYSTEM, POLICY):
            system["limits" if target == SYSTEM else "on_unavailable"] = digest
        elif target.kind is TargetKind.RESOURCE:
            resources[target.resource] = digest
        elif target.kind is TargetKind.ENTITY:
            entity = entities.setdefault(target.entity_id, {})
            entity["parent"] = digest
            if target.entity_id in managed.registered:
                entity["registered"] = True
        elif target.kind is TargetKind.MODE and not target.entity_id:
            modes[target.resource] = digest
        elif target.kind is TargetKind.MODE:
            entity = entities.setdefault(target.entity_id, {})
            entity.setdefault("modes", {})[target.resource] = digest
        else:
            entity = entities.setdefault(target.entity_id, {})
            entity.setdefault("resources", {})[target.resource] = digest
    body: dict[str, Mapping[str, Any]] = {
        "managed_resources": resources,
        "managed_entities": entities,
    }
    if modes:
        body["managed_modes"] = modes
    count = _pages_for(len(json.dumps(body)), pages_before)
    header = {"pages": count, "managed_system": system, **(body if not count else _empty())}
    return StatePages(header, _spread(body, count))


def _pages_for(characters: int, before: int) -> int:
    if not before and characters <= INLINE_CHARACTERS:
        return 0
    count = before or 1
    while count * PAGE_CHARACTERS < characters and count < MAX_PAGES:
        count *= 2
    return count


def _spread(body: Mapping[str, Mapping[str, Any]], count: int) -> list[Document]:
    """Return the pages: each name of a section is in the page of that name."""
    pages: list[Document] = [_empty() for _ in range(count)]
    for section, named in body.items():
        for name, managed in named.items() if count else ():
            pages[_page_of(name, count)].setdefault(section, {})[name] = managed
    return pages


def _empty() -> Document:
    return {"managed_resources": {}, "managed_entities": {}}


def _page_of(name: str, count: int) -> int:
    return crc32(name.encode()) % count


def decode(documents: Iterable[Document]) -> Managed:
    """Return the state from its pages; ``documents`` begins with the first page.

    After an interrupted rewrite a name may be in two pages. The higher page is the newer one.
    """
    digests: dict[Target, str] = {}
    registered: set[str] = set()
    for page in documents:
        for part, digest in _names(page.get("managed_system"), whole="limits"):
            digests[POLICY if part == "on_unavailable" else SYSTEM] = digest
        for resource, digest in _names(page.get("managed_resources")):
            digests[Target(TargetKind.RESOURCE, resource=resource)] = digest
        for resource, digest in _names(page.get("managed_modes")):
            digests[Target(TargetKind.MODE, resource=resource)] = digest
        for entity_id, entity in _mapping(page.get("managed_entities")).items():
            details = entity if isinstance(entity, Mapping) else {"resources": entity}
            if "parent" in details:
                digests[Target(TargetKind.ENTITY, entity_id)] = str(details["parent"])
            if details.get("registered"):
                registered.add(entity_id)
            for resource, digest in _names(details.get("resources")):
                digests[Target(TargetKind.ENTITY_LIMITS, entity_id, resource)] = digest
            for resource, digest in _names(details.get("modes")):
                digests[Target(TargetKind.MODE, entity_id, resource)] = digest
    return Managed(digests, frozenset(registered))


def _names(value: object, whole: str = "") -> Iterator[tuple[str, str]]:
    """Yield names with their digests; names in the documented form, a list, have none.

    ``whole`` is the name that a plain ``true`` stands for.
    """
    if isinstance(value, Mapping):
        yield from ((str(name), str(digest)) for name, digest in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(name), PENDING) for name in value)
    elif value is True and whole:
        yield whole, PENDING


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
