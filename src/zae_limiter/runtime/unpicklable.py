"""A base of objects that belong to their process."""

from __future__ import annotations

from typing import NoReturn


class Unpicklable:
    """Raises a TypeError that says what to do if it is pickled or copied.

    Without it, the error would name the first inner object that pickle meets, such as a lock.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a {name} holds locks and connections of its process, so it cannot be pickled or "
            f"copied: pass its URL to the other process, and make a {name} there"
        )
