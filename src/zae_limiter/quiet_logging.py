"""Loggers that never raise.

A handler or a filter of the user may raise. Renewals, later writes and transactions write to the
log, and such an error must not stop or repeat any of them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class QuietLogger(_Adapter):
    """A logger that ignores errors of its handlers and filters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["stacklevel"] = (
            kwargs.get("stacklevel", 1) + 1
        )  # so a record names the caller's line
        try:  # noqa: SIM105 - the import of this module does without contextlib
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - a handler may raise anything, and it cannot be logged
            pass


def quiet_logger(name: str) -> QuietLogger:
    """Return the logger of a module."""
    return QuietLogger(logging.getLogger(name), {})
