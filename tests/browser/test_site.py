"""The built site in a real browser without a network: what readers see, and what is fetched."""

import base64
import os
from pathlib import Path

import pytest

from tests.browser.conftest import SITE
from tests.browser.devtools import eventually

PAGES = sorted(str(page.relative_to(SITE).parent) for page in SITE.rglob("index.html"))
DIAGRAM = 'class="mermaid"'
# Pages that show diagrams, and how many.
DIAGRAMS = {
    page: count
    for page in PAGES
    if (count := (SITE / page / "index.html").read_text(encoding="utf-8").count(DIAGRAM))
}
WIDTH, HEIGHT = 1440, 900
CODE_THAT_SCROLLS = """
[...document.querySelectorAll("article pre > code, article code")]
    .filter(code => code.scrollWidth > code.clientWidth + 1 && code.closest("pre"))
    .map(code => `${code.scrollWidth} of ${code.clientWidth}: ${code.innerText.slice(0, 60)}`)
"""


@pytest.fixture(autouse=True)
def _window(browser):
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=WIDTH,
        height=HEIGHT,
        deviceScaleFactor=1,
        mobile=False,
    )


def test_the_site_has_diagrams():
    assert sum(DIAGRAMS.values()) >= 10


@pytest.mark.parametrize("page", DIAGRAMS)
def test_every_diagram_is_drawn(browser, address, page):
    browser.open(f"{address}/{page}/")
    drawings = eventually(lambda: _drawn(browser, DIAGRAMS[page]))
    assert drawings, f"of {DIAGRAMS[page]} diagrams were drawn: {_drawings(browser)}"
    for drawing in drawings:
        box = browser.call("DOM.getBoxModel", nodeId=drawing["nodeId"])["model"]
        assert box["width"] > 100, box
        assert box["height"] > 50, box


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_no_other_host_for_anything(browser, address, page):
    browser.open(f"{address}/{page}/")
    if page in DIAGRAMS:
        eventually(lambda: _drawn(browser, DIAGRAMS[page]))
    browser.evaluate("new Promise(resolve => setTimeout(resolve, 100))")
    own = (address, "data:", "blob:")
    assert [url for url in browser.requested() if not url.startswith(own)] == []


@pytest.mark.parametrize("page", [".", "getting-started"])
def test_code_of_the_first_pages_fits_the_window(browser, address, page):
    browser.open(f"{address}/{page}/")
    assert browser.evaluate(CODE_THAT_SCROLLS) == []


def test_pictures_of_pages_for_a_look(browser, address):
    """Written only where ``ZAEL_SCREENSHOTS`` names a folder."""
    folder = os.environ.get("ZAEL_SCREENSHOTS")
    if not folder:
        pytest.skip("no folder is named")
    for page, count in DIAGRAMS.items():
        browser.open(f"{address}/{page}/")
        eventually(lambda: _drawn(browser, count))  # noqa: B023 - called at once
        picture = browser.call("Page.captureScreenshot", captureBeyondViewport=False)
        name = page.replace("/", "-").strip(".") or "index"
        Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


def _drawn(browser, count):
    """Return the drawings if they are so many; none of them reports an error."""
    drawings = _drawings(browser)
    return drawings if len(drawings) == count else []


def _drawings(browser):
    """Return the drawn diagrams, which are in shadow trees."""
    return [
        each
        for each in browser.elements()
        if each["nodeName"] == "svg"
        and _attributes(each).get("id", "").startswith("__mermaid")
        and _attributes(each).get("aria-roledescription") != "error"
    ]


def _attributes(node):
    flat = node.get("attributes", [])
    return dict(zip(flat[::2], flat[1::2], strict=True))
