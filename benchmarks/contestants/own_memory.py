"""``memory://``."""

from __future__ import annotations

from benchmarks.cases import Setting
from benchmarks.contestants._own import own_contestants


def url_of(setting: Setting) -> str:
    return "memory://"


CONTESTANTS = own_contestants("zae-limiter memory", "memory", url_of)
