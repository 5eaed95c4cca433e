"""What the pages show, on a real store."""

import csv
import html
import json
import re
import threading

import pytest

from tests.dashboard.conftest import HOSTILE, fill
from zae_limiter import Limit, RateLimitExceeded, SyncRepository
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter_ops.views.advice import GivenOptions

MANIFEST = "resources:\n  gpt-4:\n    limits:\n      rpd: 20/day\n"


def test_the_overview_shows_who_is_limited_and_by_which_limit(page):
    other = SyncRepository.open("default", url=f"sqlite:///{page.repository.stack_name}")
    from zae_limiter import SyncRateLimiter

    limiter = SyncRateLimiter(other)
    for _ in range(3):
        with pytest.raises(RateLimitExceeded), limiter.acquire("acme-web", "gpt-4", {"rpd": 3}):
            pass
    other.close()  # stores its counts
    text = page.client().page("overview")
    assert "acme-web" in text
    assert "resource defaults" in text
    assert "asked for 3" in text
    assert "in debt" in text
    assert "debtor" in text


def test_quotas_and_budgets_show_their_window_and_money(page):
    limits = [
        Limit.quota("tokens", 1_000_000, per="month", zone="Europe/Berlin"),
        Limit.budget("usd", "250.00", per="month", zone="Europe/Berlin"),
    ]
    page.limiter.set_limits("payer", limits, "gpt-4")
    with page.limiter.acquire("payer", "gpt-4", {"tokens": 900_000, "usd": "1.25"}):
        for path, query in (
            ("entity", {"id": "payer"}),
            ("resource", {"name": "gpt-4", "q": "payer"}),
        ):
            text = page.client().page(path, **query)
            assert "100,000" in text
            assert "0 used, 900,000 held" in text
            assert "248.75" in text
            assert "of 250.00 USD" in text
            assert "next window" in text
            assert " CET" in text or " CEST" in text


def test_the_overview_shows_windows_holds_and_thresholds_of_quotas(page):
    limits = [
        Limit.quota("tokens", 1000, per="day", thresholds=(80,), hold_ttl=60),
        Limit.budget("usd", "10.00", per="month"),
    ]
    page.limiter.set_limits("payer", limits, "gpt-4")
    with page.limiter.acquire("payer", "gpt-4", {"tokens": 900, "usd": "8.00"}):
        pass
    with page.limiter.acquire("payer", "gpt-4", {"tokens": 10, "usd": "0.50"}):
        text = page.client().page("overview")
    close = text[text.index('id="close-title"') : text.index('id="time-title"')]
    assert "900 used, 10 held, past the threshold of 80&nbsp;%" in close
    assert '1.50 <span class="of">of 10.00 USD' in close
    assert close.count("next window") == 2
    flight = text[text.index('id="flight-title"') : text.index('id="store-title"')]
    assert "0.50 of 10.00 USD" in flight
    assert "10 of 1,000" in flight
    assert flight.count("in ") + flight.count("with its window") >= 2


def test_a_bucket_in_shadow_mode_is_not_limited(page):
    def limited(text):
        return text[text.index('class="tiles"') : text.index('id="close-title"')]

    assert '<span class="figure">1</span><span>limited now' in page.client().page("overview")
    page.repository.set_mode("gpt-4", mode="shadow")
    shown = eventually(
        lambda: limited(page.client().page("overview")),
        lambda text: "mode shadow: nobody is rejected" in text,
    )
    assert "mode shadow: nobody is rejected" in shown
    assert '<span class="figure">0</span><span>limited now' in shown
    page.repository.set_mode("gpt-4", "debtor", "deny")
    denied = "mode deny: every call is rejected"
    shown = eventually(lambda: limited(page.client().page("overview")), lambda text: denied in text)
    assert denied in shown
    assert '<span class="figure">1</span><span>limited now' in shown


def test_levels_show_modes_and_pauses_with_their_ends(page):
    """The level of a bucket that admits nothing says nothing about its next call."""
    repository = page.repository
    repository.set_mode("gpt-4", "close-1", "deny")
    repository.set_mode("gpt-4", "debtor", "deny", until="2099-12-01T09:00:00Z")
    repository.pause("acme-web", "gpt-4", 300)
    client = page.client()

    def lines(text):
        """Return the rows of a table as text, by entity."""
        rows = (words_of(row) for row in text.split("<tr>") if 'data-label="state"' in row)
        return {row.split()[0]: row for row in rows}

    def resource():
        return lines(client.page("resource/live", name="gpt-4"))

    found = eventually(resource, lambda rows: "paused" in rows.get("acme-web", ""))
    assert "denied mode deny: every call is rejected" in found["close-1"]
    assert "not while it is denied" in found["close-1"]
    assert "mode deny: every call is rejected for " in found["debtor"]
    assert "paused for " in found["acme-web"]
    for entity_id, shown in (("close-1", "denied"), ("debtor", "denied"), ("acme-web", "paused")):
        assert f" {shown} " in lines(client.page("entity/live", id=entity_id))[entity_id]
    explained = words_of(client.page("entity/explain", id="close-1", resource="gpt-4"))
    assert "no denied" in explained, explained


def words_of(markup):
    """Return the words of a part of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def test_shadow_rejections_are_shown_apart(page):
    page.repository.set_mode("gpt-4", mode="shadow")
    for _ in range(3):
        with page.limiter.acquire("quiet", "gpt-4", {"rpd": 10}):
            pass
    page.repository.close()  # stores the counts
    client = page.client()
    wanted = "2 shadow rejections"
    text = eventually(lambda: client.page("overview"), lambda text: wanted in text)
    assert wanted in text
    assert "shadow rejections</th>" in text
    assert "2 in all" in client.page("entity", id="quiet")
    line = next(
        each
        for each in csv.DictReader(client.page("usage.csv").splitlines())
        if each["entity_id"] == "quiet"
    )
    assert (line["shadowed"], line["rejected"]) == ("2", "0")


def test_an_id_with_markup_is_shown_as_text(page):
    client = page.client()
    for path, query in (
        ("overview", {}),
        ("resource", {"name": "gpt-4", "sort": "name"}),
        ("resource", {"name": "gpt-4", "q": HOSTILE}),
        ("entity", {"id": HOSTILE}),
        ("entity/explain", {"id": HOSTILE, "resource": "gpt-4"}),
        ("find", {"q": "<img"}),
        ("usage", {"resource": "gpt-4"}),
        ("actions/pause", {"entity": HOSTILE, "resource": "gpt-4"}),
    ):
        text = client.page(path, **query)
        assert "<img" not in text, path
        assert "&lt;img" in text, path


def test_modes_are_shown_with_the_limits(page):
    page.repository.set_mode("gpt-4", mode="shadow")
    page.repository.set_mode("gpt-4", "acme-web", "deny", until=4_000_000_000)
    client, until = page.client(), "mode: deny until 2096-10-02T07:06:40Z"
    assert "mode: shadow" in client.page("limits")
    assert until in client.page("limits", resource="gpt-4")
    assert "mode: shadow" in client.page("resource", name="gpt-4")
    assert until in client.page("entity", id="acme-web")
    explained = client.page("entity/explain", id="acme-web", resource="gpt-4")
    assert "Mode: deny until 2096-10-02T07:06:40Z" in explained


@pytest.mark.parametrize("sort", ["used", "name", "wait", "rejected", "level", "nonsense"])
def test_a_resource_is_sorted_and_searched_on_the_server(page, sort):
    text = page.client().page("resource", name="gpt-4", sort=sort, q="ACME", page="7")
    assert "acme-web" in text
    assert "close-1" not in text
    assert "Page 1 of 1" in text


def test_very_many_rows_come_in_pages(page):
    for number in range(60):
        page.limiter.set_limits(f"k{number:02d}", [Limit.per_day("rpd", 10)], "many")
        with page.limiter.acquire(f"k{number:02d}", "many", {"rpd": 1}):
            pass
    client = page.client()
    first = client.page("resource", name="many", sort="name")
    assert "Page 1 of 2" in first
    assert "k49" in first
    assert "k50" not in first
    assert "k50" in client.page("resource", name="many", sort="name", page="2")


def test_an_entity_shows_its_limits_relatives_and_changes(page):
    text = page.client().page("entity", id="acme-web")
    assert "resource defaults" in text
    assert "charged as well" in text
    assert "entity created" in text
    assert "<svg" in text
    assert "acme-web" in page.client().page("entity", id="acme")  # its child


def test_a_call_that_is_typed_in_is_explained(page):
    client = page.client()
    text = client.page("entity/explain", id="acme-web", resource="gpt-4", amounts="rpd=1")
    assert "limited" in text
    assert "zae-limiter explain acme-web gpt-4 -c rpd=1" in text
    text = client.page("entity/explain", id="acme-web", resource="gpt-4", amounts="tpd=1 rpd=x")
    assert "NAME=AMOUNT" in text


def test_a_manifest_is_planned_and_its_problems_are_told(page):
    client = page.client()
    status, text = client.post("manifest", text=MANIFEST)
    assert status == 200
    assert "~ update" in text
    status, text = client.post("manifest", text="resources: 5")
    assert status == 200
    assert "has problems" in text
    assert page.repository.get_resource_defaults("gpt-4") == [
        Limit.per_day("rpd", 10),
        Limit.per_day("tpd", 1000),
    ]


def test_a_named_manifest_is_compared(serve, tmp_path):
    file = tmp_path / "limits.yaml"
    file.write_text(MANIFEST)
    page = serve(manifest=file)
    assert "gpt-4" in page.client().page("manifest", named="1")
    file.unlink()
    assert page.client().get("/n/default/manifest?named=1")[0] == 400


@pytest.mark.parametrize("path", ["usage", "usage.csv", "usage.json"])
def test_a_ranking_by_an_unknown_name_is_refused(page, path):
    client = page.client()
    status, _, text = client.get(f"/n/default/{path}?by=rdp")
    assert status == 400
    assert "limits with usage: rpd, tpd" in html.unescape(text)
    status, _, text = client.get(f"/n/default/{path}?resource=gtp-4")
    assert status == 400
    assert "resource 'gtp-4' is not known (did you mean 'gpt-4'?)" in html.unescape(text)


def test_parents_have_the_calls_of_the_export(page):
    client = page.client()
    text = client.page("usage")
    (parent,) = json.loads(client.page("usage.json"))["parents"]
    row = text[text.index('id="parents-title"') :]
    for key, title in [("calls", "calls"), ("rejected_calls", "rejected"), ("waited", "waited")]:
        assert f'<td data-label="{title}" class="n">{parent[key]}</td>' in row


def test_the_calls_of_few_buckets_are_awaited_without_a_request(page):
    assert "is read only on request" not in page.client().page("overview")


def test_a_wait_of_days_ends_at_a_date(page):
    page.repository.set_limits("slow", [Limit.per_day("rpd", 1, burst=5)], "gpt-4")
    with page.limiter.acquire("slow", "gpt-4", {"rpd": 5}):
        pass
    with (
        pytest.raises(RateLimitExceeded) as info,
        page.limiter.acquire("slow", "gpt-4", {"rpd": 3}),
    ):
        pass
    assert 2 * 86400 < info.value.retry_after_seconds <= 3 * 86400
    with page.limiter.acquire("slow", "gpt-4", {}):  # its write reports the rejection
        pass
    cell = page.client().page("overview").split('data-label="retry at">')
    assert any(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ <.*in [23] d", each) for each in cell)


def test_a_call_that_was_refused_elsewhere_fits_when_that_has_enough(page):
    page.repository.set_limits("key-5", [Limit.quota("tokens", 10, per="month")], "all-models")
    with page.limiter.acquire("key-5", "all-models", {"tokens": 10}):
        pass
    also = {"all-models": {"tokens": 5}}
    acquire = page.limiter.acquire("key-5", "gpt-4", {"rpd": 1}, also=also)
    with pytest.raises(RateLimitExceeded), acquire:
        pass
    for resource, amounts in [("gpt-4", {"rpd": 1}), ("all-models", {})]:  # these report it
        with page.limiter.acquire("key-5", resource, amounts):
            pass
    client = page.client()

    def waits(text):
        lines = text[text.index('id="limited-title"') : text.index('id="close-title"')].split(
            "<tr>"
        )
        return [words_of(line) for line in lines if "gpt-4" in line and "key-5" in line]

    found = waits(client.page("overview"))
    assert "when tokens of key-5 on all-models has enough" in found[0]
    page.repository.reset_bucket("key-5", "all-models")
    found = eventually(
        lambda: waits(client.page("overview")), lambda lines: lines and "fits now" in lines[0]
    )
    assert "fits now" in found[0]


def test_usage_is_exported(page):
    client = page.client()
    lines = list(csv.DictReader(client.page("usage.csv").splitlines()))
    assert {line["entity_id"] for line in lines} >= {"acme-web", "close-1"}
    document = json.loads(client.page("usage.json", by="rpd", resource="gpt-4"))
    assert document["by"] == "rpd"
    assert document["consumers"][0]["entity_id"] == "acme-web"
    assert [each["entity_id"] for each in document["parents"]] == ["acme"]


def test_every_namespace_has_pages_of_its_own(page):
    page.repository.register_namespace("other")
    client = page.client()
    assert "/n/other/overview" in client.page("namespaces")
    status, _, text = client.get("/n/other/overview")
    assert status == 200
    assert "acme-web" not in text


def test_a_deleted_namespace_is_told_and_comes_back(page):
    page.repository.register_namespace("short")
    client = page.client()
    assert client.get("/n/short/overview")[0] == 200
    page.repository.delete_namespace("short")

    def later():
        return client.get("/n/short/overview")

    status, _, text = eventually(later, lambda answer: answer[0] == 404)
    assert status == 404
    assert "does not exist" in text
    _, _, live = client.get("/n/short/overview/live")
    assert "does not exist" in live
    page.repository.register_namespace("short")
    assert eventually(later, lambda answer: answer[0] == 200)[0] == 200


def test_a_store_that_is_down_is_told_and_comes_back(serve, url):
    is_down = threading.Event()
    is_down.set()

    def open_store():
        if is_down.is_set():
            raise RateLimiterUnavailable("the store did not answer")
        return SyncRepository.open("default", url=url)

    page = serve(open_store)
    fill(page.limiter)
    client = page.client()
    status, _, text = client.get("/n/default/overview")
    assert status == 503
    assert "did not answer" in text
    assert "comes back by itself" in text
    is_down.clear()
    assert "debtor" in client.page("overview")


def test_a_level_moves_from_one_refresh_to_the_next(page):
    client = page.client()
    assert "2 <span" in client.page("entity/live", id="close-1")
    with page.limiter.acquire("close-1", "gpt-4", {"rpd": 1}):
        pass
    text = eventually(
        lambda: client.page("entity/live", id="close-1"), lambda text: "1 <span" in text
    )
    assert "1 <span" in text


def test_the_age_of_the_figures_is_shown(page):
    assert "lists read" in page.client().page("overview/live")


def eventually(look, is_wanted, seconds=20):
    """Return the first answer that is wanted, or the last one."""
    import time

    until = time.monotonic() + seconds
    while not is_wanted(found := look()) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def test_a_problem_of_an_explanation_suggests_a_command_on_the_same_store(serve, url):
    given = GivenOptions()
    given.store = ("--url", url)
    text = serve(given=given).client().page("entity/explain", id="key-7", resource="gpt-4")
    assert f"store some: zae-limiter system set-defaults --url {url}" in text


def test_a_call_that_never_fits_is_limited_for_ever(page):
    amounts = {"id": "acme-web", "resource": "gpt-4", "amounts": "rpd=11"}
    text = words_of(page.client().page("entity/explain", **amounts))
    assert "limited for ever" in text
    assert "no never" in text
