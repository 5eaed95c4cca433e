"""Read the input of a plan: the live settings of targets, and the managed state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zae_limiter._async.repository.context import Context
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity
from zae_limiter_ops.manifest import state
from zae_limiter_ops.manifest.state import Managed, page_key
from zae_limiter_ops.manifest.targets import POLICY, Setting, Target, TargetKind

Document = dict[str, Any]


def level_of(target: Target) -> ConfigLevel:
    """Return the configuration level of a target that has limits, a policy or a mode."""
    return ConfigLevel(target.entity_id, target.resource)


async def read_settings(context: Context, targets: Iterable[Target]) -> dict[Target, Setting]:
    """Read the settings of the targets that exist.

    Each setting is current at some moment during the call; the moments may differ.
    """
    wanted = set(targets)
    places = sorted(target.entity_id for target in wanted if target.kind is TargetKind.ENTITY)
    levels = sorted({level_of(target) for target in wanted if target.kind is not TargetKind.ENTITY})
    configs = await context.engine.configs.get_many(context.namespace_id, levels)
    entities = await context.engine.entities.get_many(context.namespace_id, places)
    settings = {}
    for target in wanted:
        if target.kind is TargetKind.ENTITY:
            entity = entities.get(target.entity_id)
            setting = None if entity is None else place_setting(entity)
        else:
            setting = _level_setting(target, configs.get(level_of(target)))
        if setting is not None:
            settings[target] = setting
    return settings


def place_setting(entity: Entity) -> Setting:
    is_described = entity.name is not None or bool(entity.metadata)
    return Setting(parent=entity.parent_id, cascade=entity.cascade, is_described=is_described)


def _level_setting(target: Target, config: LevelConfig | None) -> Setting | None:
    if config is None:
        return None
    if target == POLICY:
        policy = config.on_unavailable
        return None if policy is None else Setting(on_unavailable=policy)
    if target.kind is TargetKind.MODE:
        return None if config.switch is None else Setting(switch=config.switch)
    return Setting(config.limits) if config.limits else None


class StateReader:
    """Reads the managed state of a namespace, and keeps the pages that were read last."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._header: Document = {}
        self._pages: dict[int, Document] = {}

    async def read(self) -> Managed:
        """Read all pages. They belong together unless an apply is writing them meanwhile."""
        self._header = await self._get(0)
        count = int(self._header.get("pages") or 0)
        self._pages = {number: await self._get(number) for number in range(1, count + 1)}
        return state.decode([self._header, *self._pages.values()])

    @property
    def revision(self) -> str | None:
        """The revision of the first page; None before the first apply."""
        revision = self._header.get("revision")
        return revision if isinstance(revision, str) else None

    @property
    def pages(self) -> int:
        """The number of pages besides the first."""
        return len(self._pages)

    async def _get(self, number: int) -> Document:
        documents = self._context.engine.documents
        return await documents.get(self._context.namespace_id, page_key(number)) or {}
