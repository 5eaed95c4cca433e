"""Templates and the forms in which they show values."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from zae_limiter_ops.views.audit_text import describe_event
from zae_limiter_ops.views.formatting import (
    describe_limits,
    format_amount,
    format_duration,
    format_number,
    format_rate,
    format_time,
)

if TYPE_CHECKING:
    pass


def environment() -> Environment:
    """Return the templates; every value is escaped, and an unknown name is an error."""
    env = Environment(
        loader=PackageLoader("zae_limiter_dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        number=format_number,
        amount=format_amount,
        duration=duration,
        time=format_time,
        clock=clock_time,
        moment=moment_text,
        bar=bar_length,
        limits=describe_limits,
        rate=format_rate,
        anchor=anchor,
        action=action_text,
        details=describe_event,
        svg=Markup,  # of reports.usage_svg, which escapes the texts in it
    )
    return env


def duration(seconds: float | None) -> str:
    """Return ``3 min 20 s``, in whole seconds above one; an empty text for None."""
    if seconds is None:
        return ""
    if 1 <= seconds < 60 and not math.isinf(seconds):
        return f"{math.ceil(seconds)} s"
    return format_duration(seconds)


def clock_time(now_ms: int) -> str:
    """Return the time of a day, to the second."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%H:%M:%S") + "Z"


def moment_text(moment: datetime) -> str:
    """Return a moment in its own zone, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname()}"


def bar_length(used_share: float) -> float:
    """Return the length of a bar, from 0 to 100."""
    return round(min(100.0, used_share * 100), 1)


def anchor(*names: str) -> str:
    """Return an id for an element that stays the same from one refresh to the next."""
    return "r" + hashlib.sha256("\0".join(names).encode()).hexdigest()[:12]


def action_text(action: str) -> str:
    """Return ``limits set`` for ``limits_set``."""
    return action.replace("_", " ")
