"""The line that installs what an optional part needs.

It names a path, never ``zae-limiter`` alone: the package index has another product of this name.
"""

from __future__ import annotations

PATH = "/path/to/zae-limiter"  # a checkout, or a wheel that `make dist` has built


def install_line(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "{PATH}[{extra}]"'


def needs(part: str, needed: str, extra: str) -> str:
    """Return a message about a missing package: what needs it, and how to install it."""
    return f"{part} needs {needed}: {install_line(extra)} (the path of a checkout or a wheel)"
