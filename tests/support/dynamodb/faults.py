"""What can befall a request on its way, and which requests it befalls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from tests.support.dynamodb.seen import Exchange

Kind = Literal[
    "close",  # the connection is closed, the store saw nothing
    "lose_answer",  # the store has carried it out, the connection is closed instead of an answer
    "late",  # closed at once, and the store gets the request delay_ms later; if that is None, only
    # when a test sets it
    "twice",  # the store gets it two times in a row, the client the second answer
    "doubled",  # the store gets it two times without a pause, the client the second answer
    "again",  # answered as usual, and the store gets the request once more, as with "late"
    "hold",  # on its way until the fault ends, then answered as usual
    "error_before",  # 500, the store saw nothing
    "error_after",  # 500, the store has carried it out
    "throttle",  # 400 ProvisionedThroughputExceededException
    "deny",  # 400 AccessDeniedException
    "expired",  # 400 ExpiredTokenException
    "black_hole",  # no answer, the store saw nothing; the connection stays until the fault ends
    "cut_answer",  # the store has carried it out, half of the answer arrives
    "garble",  # the store has carried it out, the answer's checksum is wrong
]
KINDS = get_args(Kind)

_CORAL, _DYNAMODB = "com.amazon.coral.service#", "com.amazonaws.dynamodb.v20120810#"
_ERRORS = {
    "error_before": (500, f"{_DYNAMODB}InternalServerError"),
    "error_after": (500, f"{_DYNAMODB}InternalServerError"),
    "throttle": (400, f"{_DYNAMODB}ProvisionedThroughputExceededException"),
    "deny": (400, f"{_CORAL}AccessDeniedException"),
    "expired": (400, f"{_CORAL}ExpiredTokenException"),
}
_CARRIED_OUT = frozenset({"lose_answer", "error_after", "cut_answer", "garble"})


@dataclass(eq=False)
class Fault:
    """In force from its making; ``with`` or ``remove()`` ends it. ``used`` counts its victims.

    ``skip`` matching requests pass before the first victim.
    """

    kind: Kind
    operation: str | None = None
    times: int | None = None
    skip: int = 0
    when: Callable[[Exchange], bool] | None = None
    delay_ms: float | None = 0
    hold: bool = False
    status: int | None = None
    code: str | None = None
    used: int = 0
    on_remove: Callable[[Fault], None] = field(default=lambda fault: None, repr=False)
    over: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no such fault: {self.kind!r}; there are {', '.join(KINDS)}")

    def remove(self) -> None:
        """Let everything pass again; connections that it held are closed."""
        self.on_remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    @property
    def reaches_the_store(self) -> bool:
        return self.kind in _CARRIED_OUT

    @property
    def holds(self) -> bool:
        return self.hold or self.kind == "black_hole"

    @property
    def error(self) -> tuple[int, str] | None:
        """Status and type of the answer that is made up, if one is."""
        if self.kind not in _ERRORS:
            return None
        status, code = _ERRORS[self.kind]
        if self.code is not None:
            code = self.code if "#" in self.code else _DYNAMODB + self.code
        return self.status or status, code

    def matches(self, exchange: Exchange) -> bool:
        if self.operation not in (None, exchange.operation):
            return False
        return self.when is None or self.when(exchange)


class Faults:
    """Those in force, in the order they were made; the first that matches strikes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: list[Fault] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._active.append(fault)

    def remove(self, fault: Fault) -> None:
        with self._lock:
            if fault in self._active:
                self._active.remove(fault)

    def strike(self, exchange: Exchange) -> Fault | None:
        """The fault that befalls the request, counted."""
        with self._lock:
            for fault in self._active:
                if fault.times != fault.used and fault.matches(exchange):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.used += 1
                    exchange.fault = fault.kind
                    return fault
        return None
