"""Tests of the built site and of the operator's page; ``make test-browser`` names a browser."""

import functools
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.devtools import Browser
from tests.docs.pages import ROOT

PROGRAM = os.environ.get("ZAEL_BROWSER")
collect_ignore_glob = [] if PROGRAM else ["test_*.py"]
SITE = ROOT / "build/site"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="session")
def address():
    """The address of a server of the built site."""
    assert (SITE / "index.html").exists(), "build the site first: make docs"
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser
