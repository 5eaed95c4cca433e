"""Warnings about blocks that were made and never entered: a forgotten ``with`` limits nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import CodeType

# The code that has made a block, and its instruction. The line is found only if it is needed.
CallSite = tuple["CodeType", int]

AcquireT = TypeVar("AcquireT")

_warned: dict[Any, int] = {}  # where `warnings` notes what was shown already


def call_site() -> CallSite:
    """Return the innermost place outside of this library that has led here."""
    frame = sys._getframe(1)  # noqa: SLF001 - documented for such uses
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "zae_limiter"


def warn_forgotten(block: object, reason: str, made_at: CallSite) -> None:
    """Warn that a block was dropped without having been entered; name the line that has made it."""
    if sys.is_finalizing():
        return  # the program has ended, and may not have come to the block
    import warnings  # few programs need it

    warnings.warn_explicit(
        f"{block!r} was never entered, {reason}",
        RuntimeWarning,
        made_at[0].co_filename,
        _line_of(made_at),
        registry=_warned,
        source=block,
    )


def _line_of(made_at: CallSite) -> int:
    code, instruction = made_at
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def disarmed(acquire: AcquireT) -> AcquireT:
    """Return an acquire that is dropped silently, since our own code may decide not to enter it."""
    if hasattr(acquire, "_made_at"):  # a limiter of the application may return another block
        acquire._made_at = None  # noqa: SLF001
    return acquire
