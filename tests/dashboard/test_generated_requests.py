"""Whatever is sent to the page: no defect, no secret, no foreign markup, no change unasked."""

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zae_limiter_contract.stopwatch import Stopwatch

from tests.dashboard.conftest import HOSTILE, Client, fill
from tests.support import raw_http
from tests.support.generated import (
    HEADER,
    MARKUP,
    QUOTED_BYTES,
    SIGNS_OF_A_BREACH,
    SUM,
    as_query,
    examples,
    on_one_line,
    quoted,
    spoiled,
    texts,
)
from tests.support.sqlite_rows import rows_of
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter_dashboard.actions import ACTIONS
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

ANSWERED_WITHIN_S = 5

KNOWN = [
    "acme", "acme-web", "gpt-4", "debtor", "nobody", "rpd", "tpd=5", "rpd=1", "rpm:5/min",
    "rpd:15/day", "usd=0.5", "rpd=", "on", "daily", "hourly", "days", "24h", "name", "60", "600",
]  # fmt: skip
GOOD = {
    "entity": ["acme", "acme", "acme-web", ""],
    "resource": ["gpt-4", "gpt-4", "gpt-4", ""],
    "sort": ["name", "used", "level"],
    "page": ["1", "2"],
    "cursor": ["acme", "acme#gpt-4"],
    "amounts": ["rpd=1", "tpd=5 rpd=1"],
    "window": ["daily", "monthly"],
    "span": ["days"],
    "history": ["read"],
    "last": ["7d"],
    "by": ["rpd"],
    "limits": ["rpm:5/min", "rpd:15/day"],
    "before": ["rpd:15/day", "rpm:5/min", "none"],
    "seconds": ["0", "60"],
    "parent": ["acme", "debtor", ""],
    "cascade": ["on", ""],
    "text": ["namespace: default\nsystem:\n  limits:\n    rpm: {capacity: 5}\n", "namespace: x"],
    "q": ["acme", "a"],
    "named": [""],
}
ACTION_PAGES = [f"actions/{name}" for name in ACTIONS]
PAGES = [
    "overview", "resources", "resource", "entity", "overview/live", "resources/live",
    "resource/live", "entity/live", "find", "entity/explain", "limits", "namespaces", "usage",
    "usage.csv", "usage.json", "manifest",
]  # fmt: skip
NAMESPACES = ["default"] * 6 + ["nothing", "..", "%2e%2e", "default%2f..", "a%00b"]
OTHERS = [
    "/", "/home", "/session", "/session/", "/n", "/n/default", "/n//overview", "//evil.example/",
    "/static/app.js", "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fapp.py",
    "/static/vendor", "/static/%00", "/static//etc/passwd", "/openapi.json", "*",
    "http://evil.example/n/default/overview",
]  # fmt: skip
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"]
WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")

TEXTS = texts(KNOWN)
VALUES = TEXTS.map(quoted) | QUOTED_BYTES
NAMES = st.sampled_from([*GOOD, "id", "name", "step", "token"])
PAIRS = st.lists(st.tuples(NAMES | VALUES, VALUES).map("=".join) | VALUES, max_size=8)
# What pages and actions take, with a few fields that are missing or wrong.
RIGHT = st.fixed_dictionaries(
    {"id": st.just("acme"), "name": st.just("gpt-4")}
    | {name: st.sampled_from(known) for name, known in GOOD.items()}
)
FORM_TEXTS = spoiled(RIGHT, NAMES, TEXTS).map(as_query)
QUERIES = st.one_of(FORM_TEXTS, FORM_TEXTS, PAIRS.map("&".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
DEEP = [
    "text=" + "[" * 2_000,
    "[" * 5_000,
    '{"token":' * 2_000,
    '{"token": ' + "9" * 5_000 + "}",
    '{"token": "\\ud800"}',  # half of a character
]
MANY = ["&".join(f"f{number}=1" for number in range(60)), "a=1&" * 2_000]
TOKENS = st.one_of(JSON.map('{{"token": {}}}'.format), JSON, st.sampled_from(DEEP)).map(str.encode)
BODIES = st.one_of(
    st.one_of(FORM_TEXTS, PAIRS.map("&".join), st.sampled_from(MANY)).map(str.encode),
    TOKENS,
    st.binary(max_size=60),
)
PAGE_PATHS = st.builds("/n/{}/{}".format, st.sampled_from(NAMESPACES), st.sampled_from(PAGES))
ACTION_PATHS = st.sampled_from(["manifest", *ACTION_PAGES]).map("/n/default/{}".format)
OTHER_PATHS = st.sampled_from(OTHERS) | st.builds(
    "/n/{}/{}".format, st.sampled_from(NAMESPACES) | VALUES, VALUES
)
READS = st.tuples(st.just("GET"), PAGE_PATHS)
FORMS_OF_ACTIONS = st.tuples(st.just("GET"), ACTION_PATHS)
WRITES = st.tuples(st.just("POST"), ACTION_PATHS)
CALLS = st.one_of(
    READS,
    FORMS_OF_ACTIONS,
    WRITES,
    WRITES,
    st.tuples(st.sampled_from(METHODS), OTHER_PATHS | PAGE_PATHS | ACTION_PATHS),
)
MORE_HEADERS = [
    "Cookie", "Content-Type", "HX-Request", "X-Forwarded-For", "X-Forwarded-Host", "Range",
    "X-Forwarded-User", "X-HTTP-Method-Override", "X-Original-URL", "If-Modified-Since",
    "Accept-Encoding", "Upgrade",
]  # fmt: skip
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(MORE_HEADERS), TEXTS | st.sampled_from(["bytes=0-,1-", "websocket", "POST"])
    ),
    max_size=2,
)


@st.composite
def requests(draw, calls=CALLS, *, bodies=BODIES, step=""):
    """Return a request; ``step`` ends its query and its body."""
    (method, path), query = draw(calls), draw(QUERIES) + step
    body = b"" if method in WITHOUT_BODY else draw(bodies) + step.encode()
    return method, f"{path}?{query}" if query else path, draw(HEADERS), body


CONFIRMED = "&step=confirm"


class Site:
    """A running page, an open session, and what no answer may contain."""

    def __init__(self, url, **options):
        self.server = DashboardServer(
            lambda: SyncRepository.open("default", url=url, config_cache_ttl=0),
            DashboardSettings(port=0, **options),
            GivenOptions(),
            "default",
        )
        self.thread = self.server.start()
        self.client = Client(self.server.url)
        self.client.sign_in()
        self.secrets = [self.client.token.encode(), self.client.cookie.partition("=")[2].encode()]

    def answer(self, asked, **changed):
        """Return the answer to a request, of which everything holds that holds for all answers.

        Its headers are those of the page's own requests, except for the changed ones.
        """
        data = self.request(asked, **changed)
        with Stopwatch() as watch:
            found = raw_http.ask(self.client.port, data)
        assert 200 <= found.status < 500, found
        self.check(found)
        assert len(found.body) < 100_000 + 40 * len(data)
        assert watch.within(ANSWERED_WITHIN_S), watch
        return found

    def request(self, asked, **changed):
        """Return the bytes of a request."""
        method, target, more, body = asked
        named = {
            "Host": f"127.0.0.1:{self.client.port}",
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "navigate",
            "Cookie": self.client.cookie,
            "Origin": self.client.origin if method == "POST" else None,
        } | {name.replace("_", "-"): value for name, value in changed.items()}
        own = [(name, value) for name, value in named.items() if value is not None]
        sent = [(name.encode(), on_one_line(value)) for name, value in [*own, *more]]
        return raw_http.request(method.encode(), target.encode(), sent, body)

    def check(self, found):
        for sign in (*SIGNS_OF_A_BREACH, *self.secrets):
            assert sign not in found.whole, found
        assert "x-injected" not in found.headers
        location = found.headers.get("location", "/").removeprefix(self.client.origin)
        assert re.match("/(?!/)", location), location

    def stop(self):
        self.server.stop()
        self.thread.join(10)


class ActionPlace:
    """A page with edits and one without, on one store."""

    def __init__(self, path):
        self._path = path
        url = f"sqlite:///{path}?synchronous=OFF"
        with SyncRepository.open("default", url=url) as repository:
            fill(SyncRateLimiter(repository))
        self.editing, self.reading = Site(url, allow_edit=True), Site(url)

    def rows(self):
        return rows_of(self._path)

    def stop(self):
        self.editing.stop()
        self.reading.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = ActionPlace(tmp_path_factory.mktemp("page") / "limits.db")
    yield place
    place.stop()


@pytest.fixture(autouse=True)
def no_defect_is_logged():
    """Fail if a server has logged an error during the test."""
    errors = []

    class Noting(logging.Handler):
        def emit(self, record):
            errors.append(record.getMessage())

    logger, handler = logging.getLogger("uvicorn.error"), Noting(logging.ERROR)
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert errors == []


@examples(150)
@given(asked=requests(step=CONFIRMED))
def test_a_stranger_gets_and_changes_nothing(place, asked):
    before = place.rows()
    found = place.editing.answer(asked, Cookie=None)
    path = asked[1].partition("?")[0]
    assert found.status >= 400 or path == "/" or path.startswith("/static/")
    assert b"acme" not in found.body
    assert "set-cookie" not in found.headers
    assert place.rows() == before


@examples(80)
@given(asked=requests(st.just(("POST", "/session")), bodies=TOKENS | BODIES))
def test_nothing_but_the_token_opens_a_session(place, asked):
    found = place.editing.answer(asked, Cookie=None)
    assert found.status in (400, 401, 414)
    assert "set-cookie" not in found.headers


FOREIGN = st.one_of(
    st.tuples(st.just("Host"), TEXTS | st.sampled_from(["evil.example", "127.0.0.1", "localhost"])),
    st.tuples(st.just("Origin"), TEXTS | st.sampled_from(["https://evil.example", "null"])),
    st.tuples(
        st.just("Sec_Fetch_Site"), TEXTS | st.sampled_from(["cross-site", "same-site", "None"])
    ),
    st.sampled_from([("Host", None), ("Sec_Fetch_Site", None)]),
)


@examples(100)
@given(asked=requests(step=CONFIRMED), foreign=FOREIGN)
def test_another_site_changes_nothing_by_the_session_of_a_user(place, asked, foreign):
    before = place.rows()
    found = place.editing.answer(asked, **dict([foreign]))
    assert found.status in (400, 403, 405), (foreign, found)
    assert b"acme" not in found.body
    assert place.rows() == before


@examples(150)
@given(asked=requests())
def test_what_is_not_confirmed_changes_nothing(place, asked):
    before = place.rows()
    place.editing.answer(asked)
    assert place.rows() == before


@examples(100)
@given(asked=requests(READS | FORMS_OF_ACTIONS, step=CONFIRMED))
def test_no_link_changes_anything(place, asked):
    before = place.rows()
    place.editing.answer(asked)
    assert place.rows() == before


@examples(80)
@given(asked=requests(WRITES, step=CONFIRMED))
def test_without_allow_edit_no_request_changes_anything(place, asked):
    before = place.rows()
    found = place.reading.answer(asked)
    if "/actions/" in asked[1]:
        assert found.status >= 400
    assert place.rows() == before


# Each field is right, or is a text that would be markup, an expression or a header.
HOSTILE_FORMS = st.fixed_dictionaries(
    {
        name: st.sampled_from([*known, MARKUP, SUM, HEADER])
        for name, known in ({"id": ["acme"], "name": ["gpt-4"]} | GOOD).items()
    }
).map(as_query)


@pytest.mark.parametrize("page", [*PAGES, *ACTION_PAGES])
@examples(15)
@given(query=HOSTILE_FORMS, body=HOSTILE_FORMS)
def test_text_of_users_is_nothing_but_text(place, page, query, body):
    target = f"/n/default/{page}?{query}"
    if page == "manifest" or page in ACTION_PAGES:
        found = place.editing.answer(("POST", target, [], f"{body}&step=preview".encode()))
    else:
        found = place.editing.answer(("GET", target, [], b""))
    if found.kind == "text/html":
        assert HOSTILE.encode() not in found.body


@examples(100)
@given(asked=requests(WRITES, bodies=FORM_TEXTS.map(str.encode), step=CONFIRMED))
def test_confirmed_actions_have_no_defect(place, asked):
    place.editing.answer(asked)


@examples(150)
@given(
    asked=requests(step="&step=preview"),
    cuts=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 30), st.binary(max_size=6)), max_size=3
    ),
)
def test_torn_requests_have_no_defect_and_change_nothing(place, asked, cuts):
    data, before = place.editing.request(asked), place.rows()
    for at, length, instead in cuts:
        data = data[:at] + instead + data[at + length :]
    found = raw_http.ask(place.editing.client.port, data, hangs_up=True)
    assert found.status < 500, found
    place.editing.check(found)
    assert place.rows() == before


def test_a_client_that_hangs_up_leaves_no_defect_in_the_log(place):
    for path in ("/session", "/n/default/actions/reset"):
        data = place.editing.request(("POST", path, [], b"token=1234567890"))
        assert raw_http.ask(place.editing.client.port, data[:-5], hangs_up=True).status < 500
    assert place.editing.client.page("resources")  # the server has seen the ends by now
