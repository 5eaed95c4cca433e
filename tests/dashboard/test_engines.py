"""The same page on every engine."""

import pytest

from tests.dashboard.conftest import HOSTILE, Page, fill
from tests.dashboard.test_pages import eventually
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRepository
from zae_limiter_dashboard.board_keeper import BoardKeeper
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

PATHS = [
    "overview",
    "overview/live",
    "overview?span=days",
    "resources",
    "resource?name=gpt-4",
    "entity?id=acme-web",
    "entity/live?id=acme-web",
    "entity/explain?id=acme-web&resource=gpt-4",
    "limits",
    "actions/delete-limits?resource=gpt-4",
    "usage?last=24h&resource=gpt-4",
    "usage.csv?last=24h",
    "namespaces",
    "find?q=debt",
]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def store(request, tmp_path, unique_name):
    if request.param == "memory":
        yield f"memory://{unique_name}"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'limits.db'}"
    else:
        with empty_table() as table:
            yield store_url(table, shared_endpoint())


@pytest.fixture
def page(store):
    repository = SyncRepository.open("default", url=store)
    server = DashboardServer(
        lambda: SyncRepository.open("default", url=store, config_cache_ttl=0),
        DashboardSettings(port=0, allow_edit=True),
        GivenOptions(),
        "default",
    )
    thread = server.start()
    page = Page(repository, server)
    fill(page.limiter)
    yield page
    server.stop()
    thread.join(20)
    repository.close()


def test_every_page_is_found(page):
    client = page.client()
    for path in PATHS:
        status, _, text = client.get(f"/n/default/{path}")
        assert status == 200, (path, text)
    text = client.page("resource", name="gpt-4")
    for entity_id in ("acme", "acme-web", "close-1", "debtor", "&lt;img"):
        assert entity_id in text
    assert HOSTILE not in text


def test_a_refresh_tells_its_cost_where_reads_cost_units(page):
    text = page.client().page("overview")
    costs = page.repository.capabilities.engine == "dynamodb"
    assert ("read units" in text) == costs


def test_the_page_says_whose_changes_it_shows(page):
    text = eventually(
        lambda: page.client().page("overview/live"), lambda text: "limits set" in text
    )
    assert "limits set" in text
    is_partial = page.repository.capabilities.engine == "dynamodb"
    assert ("the first 20 entities that are listed above" in text) == is_partial
    assert ("zae-limiter audit list" in text) == is_partial


def test_a_refresh_reads_only_the_buckets_that_are_shown(page):
    repository = page.repository
    if repository.capabilities.engine != "dynamodb":
        pytest.skip("reads of an embedded engine are not counted")
    keeper = BoardKeeper(lambda: repository, costs_units=True)
    rows = keeper.board(30).in_order("gpt-4", "name")
    keeper.close()
    defaults = repository.get_resource_defaults("gpt-4")
    before = repository.get_stats().calls
    fresh, units = keeper.refreshed(rows[:3], lambda *_: [defaults[1]])
    assert [row.bucket for row in fresh] == [row.bucket for row in rows[:3]]
    assert units == 0.5 * len({row.bucket for row in rows[:3]})
    assert repository.get_stats().calls == before + 1  # one BatchGetItem by keys


def test_a_raised_budget_is_shown_on_every_page_before_its_next_charge(page):
    repository, client = page.repository, page.client()
    repository.set_resource_defaults("gpt-5", [Limit.budget("usd", "5.00", per="month")])
    with page.limiter.acquire("key-1", "gpt-5", {"usd": "4.50"}):
        pass
    repository.set_resource_defaults("gpt-5", [Limit.budget("usd", "50.00", per="month")])
    for path, query in (
        ("entity", {"id": "key-1"}),
        ("entity/live", {"id": "key-1"}),
        ("resource", {"name": "gpt-5"}),
        ("resource/live", {"name": "gpt-5"}),
    ):
        text = eventually(lambda: client.page(path, **query), lambda text: "key-1" in text)  # noqa: B023
        assert '45.50 <span class="of">of 50.00 USD</span>' in text, path
        assert "0.50 <span" not in text.replace("45.50 <span", ""), path
    overview = eventually(lambda: client.page("overview/live"), lambda text: "close-1" in text)
    assert "close-1" in overview
    assert "key-1" not in overview


def test_nothing_is_read_before_somebody_looks(store):
    opened = []

    def open_store():
        opened.append(SyncRepository.open("default", url=store))
        return opened[-1]

    keeper = BoardKeeper(open_store, costs_units=False)
    assert opened == []
    assert keeper.board(30).complete
    keeper.close()
    for repository in opened:
        repository.close()
