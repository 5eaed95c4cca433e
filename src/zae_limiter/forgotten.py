"""Warnings about blocks that were made and never entered: a forgotten ``with`` limits nothing."""

from __future__ import annotations

import sys
import weakref
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


class Unentered(weakref.ref[Any]):
    """Notices that a block is dropped without having been entered; the block itself holds it.

    It is a weak reference, since a ``__del__`` would run after every block: a Ctrl-C that came just
    then would be swallowed.
    """

    __slots__ = ("about", "made_at", "reason")

    about: str | tuple[str, str, str, object]
    reason: str
    made_at: CallSite


def unentered(
    block: object, about: str | tuple[str, str, str, object], reason: str, made_at: CallSite
) -> Unentered:
    """Return what notices that a block is dropped.

    ``about`` names the block: a text, or its class, entity, resource and amounts.
    """
    noticed = Unentered(block, _warn_forgotten)
    noticed.about, noticed.reason, noticed.made_at = about, reason, made_at
    return noticed


def _warn_forgotten(noticed: weakref.ref[Any]) -> None:
    """Warn that a block was dropped without having been entered; name the line that has made it."""
    assert isinstance(noticed, Unentered)
    if sys.is_finalizing():
        return  # the program has ended, and may not have come to the block
    import warnings  # few programs need it

    about = noticed.about
    if not isinstance(about, str):
        about = "{}({!r} on {!r}, {})".format(*about)
    warnings.warn_explicit(
        f"{about} was never entered, {noticed.reason}",
        RuntimeWarning,
        noticed.made_at[0].co_filename,
        _line_of(noticed.made_at),
        registry=_warned,
    )


def _line_of(made_at: CallSite) -> int:
    code, instruction = made_at
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def disarmed(acquire: AcquireT) -> AcquireT:
    """Return an acquire that is dropped silently, since our own code may decide not to enter it."""
    if hasattr(acquire, "_unentered"):  # a limiter of the application may return another block
        acquire._unentered = None  # noqa: SLF001
    return acquire
