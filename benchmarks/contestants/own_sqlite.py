"""``sqlite://``: a file on disk, flushed at checkpoints (``synchronous=NORMAL``)."""

from __future__ import annotations

from benchmarks.cases import Setting
from benchmarks.contestants._own import own_contestants


def url_of(setting: Setting) -> str:
    return f"sqlite:///{setting.folder / 'limits.db'}?synchronous=NORMAL"


CONTESTANTS = own_contestants("zae-limiter sqlite", "file", url_of, writers=4)
