"""Warnings about blocks that were made and never entered: a forgotten ``with`` limits nothing."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import CodeType, FrameType

AcquireT = TypeVar("AcquireT")

_warned: dict[Any, int] = {}  # where `warnings` notes what was shown already


def caller_of_library() -> FrameType:
    """Return the innermost frame outside of this library that has led here."""
    frame = sys._getframe(1)  # noqa: SLF001 - documented for such uses
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "zae_limiter"


class Unentered(weakref.ref[Any]):
    """Notices that a block is dropped without having been entered; the block itself holds it.

    It is a weak reference, since a ``__del__`` would run after every block: a Ctrl-C that came just
    then would be swallowed. Every acquire makes one, so its fields are assigned in the place where
    it is made, and the text and the line of the warning are found only if it is shown.
    """

    __slots__ = ("about", "code", "instruction", "text")

    text: str
    """The text of the warning, with places for ``about``."""
    about: tuple[object, ...]
    code: CodeType
    """The code that has made the block, at its ``instruction``."""
    instruction: int


def warn_forgotten(noticed: weakref.ref[Any]) -> None:
    """Warn that a block was dropped without having been entered; name the line that has made it."""
    assert isinstance(noticed, Unentered)
    if sys.is_finalizing():
        return  # the program has ended, and may not have come to the block
    import warnings  # few programs need it

    warnings.warn_explicit(
        noticed.text.format(*noticed.about),
        RuntimeWarning,
        noticed.code.co_filename,
        _line_of(noticed.code, noticed.instruction),
        registry=_warned,
    )


def _line_of(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def disarmed(acquire: AcquireT) -> AcquireT:
    """Return an acquire that is dropped silently, since our own code may decide not to enter it."""
    if hasattr(acquire, "_unentered"):  # a limiter of the application may return another block
        acquire._unentered = None  # noqa: SLF001
    return acquire
