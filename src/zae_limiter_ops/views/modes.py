"""The mode of a bucket now, and modes as they are stored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter_ops.views.formatting import LEVELS

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.switches import Switch


# As in zae_limiter.models.switches, which help texts must not import.
DENY = "deny"


class ModeView(NamedTuple):
    """The mode that counts for a bucket now, its end, and the level that it comes from."""

    mode: str
    until: datetime | None
    source: ConfigSource | None

    @classmethod
    def of(cls, repository: SyncRepository, entity_id: str, resource: str) -> ModeView:
        return cls(*repository.resolve_mode(entity_id, resource))

    @classmethod
    def of_resource(cls, repository: SyncRepository, resource: str) -> ModeView:
        """Return the mode of the entities that have no configuration of their own there."""
        from zae_limiter.models.config import ConfigSource

        switch, now_ms = repository.get_mode(resource), repository.charging.clock()
        return cls.of_switch(switch, ConfigSource.RESOURCE, now_ms) or ENFORCED

    @classmethod
    def of_switch(cls, switch: Switch | None, source: ConfigSource, now_ms: int) -> ModeView | None:
        """Return the mode that a level sets; None if it sets none, or if that is over."""
        if switch is None or switch.is_over(now_ms):
            return None
        return cls(switch.mode, switch.until, source)

    def denied_seconds(self, now_ms: int) -> float:
        """Return the rest of mode deny, infinite without an end; 0 in any other mode."""
        if self.mode != DENY:
            return 0.0
        if self.until is None:
            return math.inf
        return max(0.0, self.until.timestamp() - now_ms / 1000)

    @property
    def never_rejects(self) -> bool:
        """Whether the mode lets every call through, unless a pause stops it."""
        from zae_limiter.models.switches import UNENFORCED

        return self.mode in UNENFORCED

    @property
    def text(self) -> str:
        """The mode with its end and its level."""
        until = f" until {iso_text(self.until)}" if self.until else ""
        level = f" ({LEVELS[self.source]})" if self.source else ""
        return f"{self.mode}{until}{level}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "mode": str(self.mode),
            "mode_until": self.until and iso_text(self.until),
            "mode_source": self.source,
        }


ENFORCED = ModeView("enforce", None, None)


def iso_text(moment: datetime) -> str:
    """Return a moment as ISO text in UTC."""
    return moment.isoformat().replace("+00:00", "Z")


def mode_json(switch: Switch | None) -> dict[str, Any] | None:
    """Return a stored mode for JSON; None if none is set."""
    return None if switch is None else switch.to_dict()


def describe_mode(switch: Switch | None) -> str:
    """Return a stored mode as text."""
    return "no mode of its own" if switch is None else str(switch)
