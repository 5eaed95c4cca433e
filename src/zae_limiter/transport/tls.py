"""Whom to trust."""

from __future__ import annotations

import os
import ssl


class Trust:
    """Checks names and certificates: by AWS_CA_BUNDLE, the system's list, or botocore's."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Made when it is first needed: reading the list takes a while."""
        if self._context is None:
            bundle = os.environ.get("AWS_CA_BUNDLE") or _list_of_botocore()
            self._context = ssl.create_default_context(cafile=bundle)
        return self._context


def _list_of_botocore() -> str | None:
    """None where the system has a list of its own."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return None
    from botocore.httpsession import get_cert_path

    return str(get_cert_path(True))
