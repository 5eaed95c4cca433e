"""The version of the distribution, and the order of versions. The build reads this file."""

from __future__ import annotations

__version__ = "1.0.0rc1"

_FORM = r"(\d+)\.(\d+)\.(\d+)(?:\.?(dev|a|b|rc)(\d+))?"
_STAGES = ("dev", "a", "b", "rc", None)  # a release, which has no suffix, comes last


def is_older(version: object, than: str = __version__) -> bool:
    """Tell whether ``version`` precedes ``than``; False if either has an unknown form."""
    first, second = _order(version), _order(than)
    return first is not None and second is not None and first < second


def _order(version: object) -> tuple[int, ...] | None:
    import re  # imported here, since most programs only need the version

    match = re.match(_FORM, version) if isinstance(version, str) else None
    if match is None:
        return None
    *numbers, stage, step = match.groups()
    return (*map(int, numbers), _STAGES.index(stage), int(step or 0))
