"""Modes of resources and entities: the arguments of the commands that set them, and their text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zae_limiter_ops.cli.shared.formatting import LEVELS
from zae_limiter_ops.cli.shared.options import validation_callback
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.switches import Switch

DENY = "deny"
INHERIT = "inherit"  # removes the mode of an entity
# The same names as in zae_limiter.models.switches, which the help must not import.
NAMES = ("enforce", "shadow", "bypass", DENY)


def _until(value: str | None) -> str | None:
    if value is not None:
        from zae_limiter.models.switches import check_until

        check_until(value)
    return value


until_option = click.option(
    "--until",
    metavar="TIME",
    callback=validation_callback(_until),
    help="End of the mode as ISO time, such as 2026-12-01T09:00:00Z; default: no end.",
)
force_option = click.option(
    "--force", is_flag=True, help="Deny a key or a resource that was never seen."
)


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

        switch = repository.get_mode(resource)
        if switch is None or switch.is_over(repository.charging.clock()):
            return ENFORCED
        return cls(switch.mode, switch.until, ConfigSource.RESOURCE)

    def denied_seconds(self, now_ms: int) -> float:
        """Return the rest of mode deny, infinite without an end; 0 in any other mode."""
        if self.mode != "deny":
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


def print_mode(output: str, switch: Switch | None) -> None:
    """Print a stored mode for people, if one is set."""
    if output == "table" and switch is not None:
        print_line(f"mode: {switch}")


def report_mode(
    output: str,
    subject: dict[str, Any],
    label: str,
    modes: tuple[Switch | None, Switch | None],
    changed: bool,
) -> None:
    """Print the mode after a command has set it; ``modes`` are those before and after."""
    before, after = modes
    earlier = f"before: {describe_mode(before)}" if changed else "unchanged"
    fields = {**subject, **(mode_json(after) or {"mode": None, "until": None})}
    text = f"{label}: {describe_mode(after)} ({earlier})"
    print_result(output, {**fields, "changed": changed}, text)


def warn_of_caches(output: str, advice: str = "") -> None:
    """Say how long the calls of other processes may go on after a deny."""
    from zae_limiter.settings import Settings

    print_hint(
        output,
        "other processes may admit calls for the rest of their config_cache_ttl, "
        f"{Settings().config_cache_ttl:g} s by default{advice}",
    )
