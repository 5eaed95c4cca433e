"""Loggers that never raise.

A handler or a filter of the user's may raise. Renewals, later writes and transactions are told of
in the log, and none of them may end, or be made twice, because of that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class QuietLogger(_Adapter):
    """Logs as the logger of the same name does; errors of its handlers and filters are ignored."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # a record names the caller's line
        try:  # noqa: SIM105 - functions do without contextlib
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever a handler raises; there is nowhere to tell it
            pass


def quiet_logger(name: str) -> QuietLogger:
    """Return the logger of a module."""
    return QuietLogger(logging.getLogger(name), {})
