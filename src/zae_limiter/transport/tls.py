"""Whom to trust."""

from __future__ import annotations

import os
import ssl


class Trust:
    """Checks names and certificates: by a list of one's own, the system's, or botocore's.

    One's own is AWS_CA_BUNDLE or, as for botocore, REQUESTS_CA_BUNDLE.
    """

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Made when it is first needed: reading the list takes a while."""
        if self._context is None:
            for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
                if bundle := os.environ.get(name):
                    self._context = _by_own_list(name, bundle)
                    break
            else:
                self._context = ssl.create_default_context(cafile=_list_of_botocore())
        return self._context


def _by_own_list(name: str, bundle: str) -> ssl.SSLContext:
    """As strict as botocore: newer Pythons refuse many a certificate that is self-made."""
    try:
        context = ssl.create_default_context(cafile=bundle)
    except OSError as error:
        words = error.strerror or str(error)
        raise OSError(f"the certificates of {name} ({bundle}) cannot be read: {words}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _list_of_botocore() -> str | None:
    """None where the system has a list of its own."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return None
    from botocore.httpsession import get_cert_path

    return str(get_cert_path(True))
