"""What an engine can do, declared rather than sniffed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """Declared by each engine; tests and callers ask here."""

    engine: str
    durable: bool
    shared_between_processes: bool
    atomic_cascade: bool
    usage_history: bool
    infrastructure: bool = False
