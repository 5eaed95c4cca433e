"""The site while it is written: ``mkdocs serve``, and ``make docs``, which alone is strict."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.docs.pages import ROOT, site
from tests.support.child_server import free_port

SERVED_WITHIN_S = 300.0  # half a minute on an idle machine


def test_only_make_docs_is_strict_and_it_says_where_the_site_is():
    assert not site().get("strict")
    recipe = re.search(r"^docs:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "mkdocs build --strict\n" in recipe[1]  # with --quiet no warning would be an error
    assert f'echo "The site is in {site()["site_dir"]}' in recipe[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return b"zae-limiter" in response.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.mark.slow  # it builds the whole site
@pytest.mark.timeout(SERVED_WITHIN_S + 60)
def test_the_site_is_served_while_changed_pages_alone_are_built():
    pytest.importorskip("mkdocs")
    port = free_port()
    command = [sys.executable, "-m", "mkdocs", "serve", "--livereload", "--dirty"]
    server = subprocess.Popen(
        [*command, "--dev-addr", f"127.0.0.1:{port}"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + SERVED_WITHIN_S
        while not answers(f"http://127.0.0.1:{port}/"):
            assert server.poll() is None, "mkdocs has ended"
            assert time.monotonic() < until
            time.sleep(0.5)
    finally:
        server.terminate()
        server.wait()
