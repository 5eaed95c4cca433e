"""The operator's page in a real browser: what people see, do, and cannot do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.devtools import eventually
from tests.dashboard.conftest import HOSTILE, Page, fill
from tests.docs.pages import ROOT
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

AXE = ROOT / ".tools/axe-core/axe.min.js"
PAGES = [
    "overview",
    "overview?span=days",
    "resources",
    "resource?name=gpt-4",
    "entity?id=acme-web",
    "entity/explain?id=acme-web&resource=gpt-4",
    "find?q=ac",
    "limits",
    "usage?resource=gpt-4",
    "manifest",
    "namespaces",
    "actions/set-limits?resource=gpt-4",
    "actions/delete-limits?resource=gpt-4",
    "actions/pause?entity=acme-web&resource=gpt-4",
    "actions/set-parent?entity=acme-web",
]
WATCHER = """
import sys, time
from zae_limiter import SyncRateLimiter, SyncRepository
repository = SyncRepository.open("default", url=sys.argv[1], config_cache_ttl=1)
limiter = SyncRateLimiter(repository)
print("ready", limiter.available("somebody", "gpt-4")["rpd"], flush=True)
until = time.monotonic() + 60
while limiter.available("somebody", "gpt-4")["rpd"] != 77 and time.monotonic() < until:
    time.sleep(0.1)
print(limiter.available("somebody", "gpt-4")["rpd"], flush=True)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with a little of everything, which allows changes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('page') / 'limits.db'}"
    repository = SyncRepository.open("default", url=url)
    server = DashboardServer(
        lambda: SyncRepository.open("default", url=url, config_cache_ttl=0),
        DashboardSettings(port=0, allow_edit=True),
        GivenOptions(),
        "default",
    )
    thread = server.start()
    page = Page(repository, server)
    page.url = url
    fill(page.limiter)
    with SyncRepository.open("default", url=url) as other:  # it stores its counts when it is closed
        limiter = SyncRateLimiter(other)
        with limiter.acquire("tester", "gpt-4", {"rpd": 11}, mode="shadow"):
            pass
    yield page
    server.stop()
    thread.join(10)
    repository.close()


@pytest.fixture
def seen(browser, page):
    """The browser after it has signed in, with the address of the namespace's pages."""
    browser.show(1280, 900)
    sign_in(browser, page.server.url)
    browser.base = f"http://127.0.0.1:{page.server.settings.port}/n/default/"
    return browser


def sign_in(browser, url):
    browser.open("about:blank")
    browser.open(url)
    browser.wait_for(
        "location.pathname.endsWith('/overview') && document.readyState === 'complete'"
    )


def fill_in(browser, selector, text):
    browser.evaluate(
        f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}; null"
    )


def press(browser, text):
    """Click a button, and wait until another page has come."""
    browser.evaluate("window.isOld = true; null")
    browser.evaluate(
        "[...document.querySelectorAll('main button')]"
        f".find(each => each.textContent.trim() === {json.dumps(text)}).click()"
    )
    browser.wait_for("!window.isOld && document.readyState === 'complete'")


def main_text(browser):
    return browser.evaluate("document.querySelector('main').innerText")


def test_the_token_leaves_no_trace(seen, page):
    token = page.server.url.partition("token=")[2]
    assert token not in seen.evaluate("location.href + document.referrer + document.cookie")
    entries = seen.call("Page.getNavigationHistory")["entries"]
    assert all(token not in entry["url"] for entry in entries[1:])
    assert seen.evaluate("document.cookie") == ""  # scripts cannot read it


def test_the_overview_shows_the_limited_tenants_of_the_demo(browser):
    command = [sys.executable, "-m", "zae_limiter", "demo", "--dashboard", "--no-open"]
    with subprocess.Popen(
        [*command, "--seconds", "120"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        try:
            line = next(each for each in demo.stdout if each.startswith("dashboard at "))
            browser.show(1280, 900)
            sign_in(browser, line.split()[-1])
            limited = "document.querySelector('[aria-labelledby=limited-title]').innerText"
            browser.wait_for(f"{limited}.includes('gpt-4')", 60)
            text = browser.evaluate(limited)
            assert "acme" in text or "globex" in text or "initech" in text or "hooli" in text
            assert browser.errors() == []
        finally:
            demo.terminate()


def test_a_level_moves_without_reloading(seen, page):
    seen.open(seen.base + "entity?id=close-1")
    seen.evaluate("window.isSame = true; null")
    assert "2 of 10" in seen.evaluate("document.getElementById('live').innerText")
    with page.limiter.acquire("close-1", "gpt-4", {"rpd": 1}):
        pass
    seen.wait_for("document.getElementById('live').innerText.includes('1 of 10')")
    assert seen.evaluate("window.isSame") is True
    page.repository.top_up("close-1", "gpt-4", {"rpd": 1})


def test_refreshes_keep_to_their_floor_and_stop_in_a_hidden_tab(seen):
    seen.open(seen.base + "overview")
    seen.evaluate("new Promise(done => setTimeout(done, 7000))")
    live = [url for url in seen.requested() if "/live" in url]
    assert 1 <= len(live) <= 4
    seen.evaluate("Object.defineProperty(document, 'hidden', {get: () => true}); null")
    seen.evaluate("new Promise(done => setTimeout(done, 1000))")  # one may be under way
    seen.events.clear()
    seen.evaluate("new Promise(done => setTimeout(done, 5000))")
    assert seen.requested() == []


def test_updates_can_be_paused(seen):
    seen.open(seen.base + "overview")
    seen.evaluate("document.querySelector('[data-pause]').click()")
    seen.evaluate("new Promise(done => setTimeout(done, 1000))")
    seen.events.clear()
    seen.evaluate("new Promise(done => setTimeout(done, 4000))")
    assert seen.requested() == []
    assert seen.evaluate("document.querySelector('[data-pause]').innerText") == "Resume updates"


def test_an_edited_limit_acts_in_another_process(seen, page):
    with subprocess.Popen(
        [sys.executable, "-c", WATCHER, page.url], stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout.readline().split() == ["ready", "10"]
        seen.open(seen.base + "actions/set-limits?resource=gpt-4")
        fill_in(seen, "#limits", "rpd:77/day\ntpd:1000/day")
        press(seen, "Preview")
        assert "rpd 77/day" in main_text(seen)
        assert "zae-limiter resource set-defaults gpt-4 -l rpd:77/day" in main_text(seen)
        press(seen, "Confirm")
        assert "are now" in main_text(seen)
        assert watcher.stdout.readline().strip() == "77"
    page.repository.set_resource_defaults(
        "gpt-4", [Limit.per_day("rpd", 10), Limit.per_day("tpd", 1000)]
    )


def test_a_limit_that_somebody_else_has_edited_is_not_overwritten(seen, page):
    seen.open(seen.base + "actions/set-limits?entity=acme&resource=gpt-4")
    fill_in(seen, "#limits", "rpd:5/day")
    press(seen, "Preview")
    page.repository.set_limits("acme", [Limit.per_day("rpd", 500)], "gpt-4", principal="mia")
    press(seen, "Confirm")
    assert "Somebody else was faster" in main_text(seen)
    assert "mia" in main_text(seen)
    assert page.repository.get_limits("acme", "gpt-4") == [Limit.per_day("rpd", 500)]


def test_limits_are_deleted_after_a_preview(seen, page):
    page.repository.set_limits("short-lived", [Limit.per_day("rpd", 3)], "gpt-4")
    seen.open(seen.base + "limits?resource=gpt-4")
    link = "a[href*='delete-limits'][href*='short-lived']"
    seen.evaluate("window.isOld = true; null")
    seen.evaluate(f'document.querySelector("{link}").click()')
    seen.wait_for("!window.isOld && document.readyState === 'complete'")
    assert "Afterwards the defaults of gpt-4 apply" in main_text(seen)
    command = "zae-limiter entity delete-limits short-lived --resource gpt-4 --yes"
    assert command in main_text(seen)
    assert page.repository.get_limits("short-lived", "gpt-4") == [Limit.per_day("rpd", 3)]
    press(seen, "Confirm")
    assert "are deleted" in main_text(seen)
    assert page.repository.get_limits("short-lived", "gpt-4") == []
    assert seen.errors() == []


def test_shadow_rejections_are_bars_of_their_own(seen):
    seen.open(seen.base + "overview")
    legend = "document.querySelector('.u-legend')?.innerText.includes('shadow rejections')"
    seen.wait_for(legend, 60)
    seen.evaluate("document.getElementById('chart-table').open = true; null")
    assert "1 shadow rejection in 48 hours" in main_text(seen)
    assert seen.errors() == []


def test_a_call_is_explained_in_place(seen):
    seen.open(seen.base + "entity?id=acme-web")
    fill_in(seen, "#explain-amounts", "rpd=1")
    seen.evaluate("document.querySelector('[hx-target=\"#explanation\"] button').click()")
    seen.wait_for("document.getElementById('explanation').innerText.includes('limited')")


def test_an_id_with_markup_is_shown_as_text(seen):
    for path in ("resource?name=gpt-4&sort=name", "usage?resource=gpt-4", "find?q=img"):
        seen.open(seen.base + path)
        assert seen.evaluate("document.querySelectorAll('img').length") == 0
    seen.open(seen.base + "resource?name=gpt-4&q=onerror")
    assert HOSTILE in main_text(seen)
    seen.evaluate("[...document.querySelectorAll('a.name')][0].click()")
    seen.wait_for(f"document.querySelector('h1').innerText === {json.dumps(HOSTILE)}")
    assert seen.errors() == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_error_and_asks_no_other_host(seen, page, path):
    seen.open(seen.base + path)
    seen.evaluate("new Promise(done => setTimeout(done, 2500))")  # with a refresh
    own = f"http://127.0.0.1:{page.server.settings.port}/"
    assert [url for url in seen.requested() if not url.startswith(own)] == []
    assert seen.errors() == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_barrier(seen, path):
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
        seen.show(width, 900, scheme)
        seen.open(seen.base + path)
        seen.evaluate(AXE.read_text())
        found = json.loads(
            seen.evaluate("axe.run({resultTypes: ['violations']}).then(JSON.stringify)")
        )
        serious = [
            (each["id"], [node["html"][:200] for node in each["nodes"]][:3])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], (scheme, width)


def test_a_narrow_window_needs_no_sideways_scrolling(seen):
    seen.show(390, 844)
    for path in ("overview", "resource?name=gpt-4", "entity?id=acme-web", "limits"):
        seen.open(seen.base + path)
        assert seen.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_a_wrong_token_is_told(browser, page):
    browser.open("about:blank")
    browser.call("Network.clearBrowserCookies")
    browser.open(page.server.url.partition("#")[0] + "#token=wrong")
    browser.wait_for("document.getElementById('state').innerText.includes('wrong')")
    assert browser.evaluate("document.getElementById('token-form').hidden") is False


def test_the_page_tells_that_its_command_has_ended_and_comes_back(browser, tmp_path):
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    repository = SyncRepository.open("default", url=url)
    server = DashboardServer(
        lambda: SyncRepository.open("default", url=url),
        DashboardSettings(port=0),
        GivenOptions(),
        "default",
    )
    thread = server.start()
    sign_in(browser, server.url)
    repository.delete_namespace("default")
    browser.wait_for("document.getElementById('live').innerText.includes('does not exist')")
    repository.register_namespace("default")
    browser.wait_for("document.getElementById('live').innerText.includes('Nobody is limited')")
    server.stop()
    thread.join(10)
    browser.wait_for("document.getElementById('live').innerText.includes('does not answer')")
    repository.close()


def test_pictures_of_pages_for_a_look(seen, request):
    """Written only where ``ZAEL_SCREENSHOTS`` names a folder."""
    import os

    folder = os.environ.get("ZAEL_SCREENSHOTS")
    if not folder:
        pytest.skip("no folder is named")
    for name, width, scheme in (
        ("light", 1280, "light"),
        ("dark", 1280, "dark"),
        ("phone", 390, "light"),
    ):
        seen.show(width, 900, scheme)
        for path in ("overview", "resource?name=gpt-4", "entity?id=acme-web"):
            seen.open(seen.base + path)
            eventually(lambda: seen.evaluate("document.fonts.status") == "loaded")
            picture = Path(folder, f"page-{path.partition('?')[0]}-{name}.png")
            picture.write_bytes(seen.picture(whole=True))
