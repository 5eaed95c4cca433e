"""Switches: the mode of a resource or of an entity, which decides what becomes of its calls."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso

if TYPE_CHECKING:
    from datetime import datetime

NO_MODE: dict[str, Any] = {"mode": None, "until": None}  # of a removed switch, in the audit log
LATEST_MS = 253_402_300_800_000  # the year 10000, which a datetime cannot hold


class SwitchMode(StrEnum):
    """The mode of a bucket.

    ``enforce`` rejects what does not fit. ``shadow`` charges every call and rejects none, so that
    the bucket may go into debt. ``bypass`` admits every call, counts its usage and charges nothing.
    ``deny`` rejects every call.
    """

    ENFORCE = "enforce"
    SHADOW = "shadow"
    BYPASS = "bypass"
    DENY = "deny"

    @classmethod
    def parse(cls, value: object, field: str = "mode") -> SwitchMode:
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            names = ", ".join(f"'{mode}'" for mode in cls)
            raise ValidationError(field, value, f"must be one of {names}") from None


# In these modes no limit rejects a call. A pause does.
UNENFORCED = frozenset((SwitchMode.SHADOW, SwitchMode.BYPASS))
SwitchName = SwitchMode | Literal["enforce", "shadow", "bypass", "deny"]  # a typo is a type error


class Switch(NamedTuple):
    """A mode that is set on a resource or an entity, until a moment or until it is changed."""

    mode: SwitchMode
    until_ms: int | None = None

    @property
    def until(self) -> datetime | None:
        """The end of the mode, in UTC; None if it has no end."""
        if self.until_ms is None:
            return None
        from datetime import UTC, datetime, timedelta  # imported here, since no acquire needs it

        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.until_ms)

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the end has come; from then on the switch counts as not set."""
        return self.until_ms is not None and self.until_ms <= now_ms

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        until = None if self.until_ms is None else iso_from_ms(self.until_ms)
        return {"mode": self.mode.value, "until": until}

    def __str__(self) -> str:
        until = "" if self.until_ms is None else f" until {iso_from_ms(self.until_ms)}"
        return f"{self.mode.value}{until}"


def switch_of(mode: object, until: object = None) -> Switch | None:
    """Return a checked switch; None for a mode of None, which removes a switch."""
    until_ms = None if until is None else check_until(until)
    if mode is None:
        if until_ms is not None:
            raise ValidationError("until", until, "needs a mode that ends then")
        return None
    return Switch(SwitchMode.parse(mode), until_ms)


def parse_switch(value: object, field: str = "mode") -> Switch:
    """Read a mode as ``str(switch)`` writes it, such as ``deny until 2026-12-01T00:00:00Z``."""
    if not isinstance(value, str):
        raise ValidationError(field, value, "must be text, such as shadow")
    mode, word, until = value.partition(" until ")
    until_ms = check_until(until.strip(), field) if word else None
    return Switch(SwitchMode.parse(mode.strip(), field), until_ms)


def check_until(value: object, field: str = "until") -> int:
    """Return the milliseconds of a moment: a datetime, ISO text, or seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_possible = 0 < value < LATEST_MS // 1000  # excludes NaN
        until_ms = int(value * 1000) if is_possible else 0
    else:
        until_ms = ms_from_iso(value, field)  # type: ignore[arg-type]
    if not 0 < until_ms < LATEST_MS:
        raise ValidationError(field, value, "must be a datetime, or seconds since 1970")
    return until_ms
