"""Take the pictures of the operator's page for the documents, in a headless browser.

``python -m tools.dashboard_pictures BROWSER`` writes PNG files into ``docs/pictures``. The page is
real, on a SQLite file with some history; times of the pictures are those of the run.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.browser.devtools import Browser
from tools.pictures import FOLDER
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

HOUR_MS = 3_600_000
TEAMS = ("acme", "globex", "initech", "hooli", "stark", "wayne")
SHOTS = {  # the page, the width and height of the window, and the colours
    "dashboard-overview": ("overview", 1280, 1120, "light"),
    "dashboard-dark": ("overview", 1280, 760, "dark"),
    "dashboard-entity": ("entity?id=acme-web", 1280, 1180, "light"),
    "dashboard-phone": ("overview", 390, 844, "light"),
}


def fill(url: str) -> None:
    """Let two days pass in which teams call models, more by day than by night."""
    now_ms = time.time_ns() // 1_000_000
    chance = random.Random(1)
    for back in range(47, -1, -1):
        at_ms = now_ms - back * HOUR_MS
        clock = _fixed(at_ms)
        with SyncRepository.builder().url(url).clock(clock).build() as repository:
            limiter = SyncRateLimiter(repository)
            if back == 47:
                _configure(limiter)
            busy = 1 + abs(12 - at_ms // HOUR_MS % 24)
            if back == 0:
                for _ in range(30):
                    _call(limiter, "acme-web", 1500)
                    _call(limiter, "hooli-batch", 6000)
            for team in TEAMS:
                for key in ("web", "batch"):
                    for _ in range(chance.randrange(2, 26 - busy)):
                        _call(limiter, f"{team}-{key}", chance.randrange(200, 9000))


def _fixed(at_ms: int) -> Any:
    return lambda: at_ms


def _configure(limiter: SyncRateLimiter) -> None:
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    limits = [Limit.per_hour("rph", 16), Limit.per_hour("tph", 90_000)]
    limiter.set_resource_defaults("gpt-4", limits)
    limiter.set_resource_defaults("claude", [Limit.concurrent("parallel", 5)])
    for team in TEAMS:
        limiter.create_entity(team)
        limiter.set_limits(team, [Limit.per_hour("rph", 40)], "gpt-4")
        for key in ("web", "batch"):
            limiter.create_entity(f"{team}-{key}", parent_id=team, cascade=True)


def _call(limiter: SyncRateLimiter, key: str, tokens: int) -> None:
    try:
        with limiter.acquire(key, "gpt-4", {"rph": 1, "tph": tokens}):
            pass
    except RateLimitExceeded:
        pass


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/limits.db"
        SyncRepository.open("default", url=url).close()
        fill(url)
        repository = SyncRepository.open("default", url=url)
        limiter = SyncRateLimiter(repository)
        limiter.pause("stark-batch", "gpt-4", 300, "mia@example.com")
        server = DashboardServer(
            lambda: SyncRepository.open("default", url=url),
            DashboardSettings(port=0, allow_edit=True),
            GivenOptions(),
            "default",
        )
        thread = server.start()
        with (
            limiter.acquire("acme-web", "claude", {"parallel": 3}),
            Browser(program, Path(folder, "profile")) as browser,
        ):
            browser.open(server.url)
            browser.wait_for("location.pathname.endsWith('/overview')")
            base = browser.evaluate("location.origin") + "/n/default/"
            browser.call("Emulation.setScrollbarsHidden", hidden=True)
            for name, (page, width, height, scheme) in SHOTS.items():
                browser.show(width, height, scheme)
                browser.open(base + page)
                if page == "overview":
                    browser.wait_for("document.querySelectorAll('.uplot').length")
                time.sleep(0.5)  # bars move to their places
                (FOLDER / f"{name}.png").write_bytes(browser.picture())
                print(FOLDER / f"{name}.png")
        server.stop()
        thread.join(10)
        repository.close()


if __name__ == "__main__":
    main(sys.argv[1])
