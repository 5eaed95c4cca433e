"""Base of the repository's parts."""

from __future__ import annotations

from zae_limiter._async.repository.admission import Admission
from zae_limiter._async.repository.context import Context


class Part:
    """One mixin per port; together they are the repository."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.admission = Admission(context)
