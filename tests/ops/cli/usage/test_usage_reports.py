"""Reports of a family of entities: the largest consumers, rejected calls, HTML pages."""

import csv
import io
import time
from html.parser import HTMLParser

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.testing import FakeClock
from zae_limiter_ops.reports.usage_html import MAX_ROWS, usage_page

VOID = {"meta", "br", "hr", "img", "link", "input", "line"}
ODD_NAME = 'key&<b>"x"</b>'


@pytest.fixture
def family(tmp_path):
    """Yield the URL of a store: two keys of a team, one key alone, and four rejected calls."""
    url = f"sqlite:///{tmp_path}/family.db?synchronous=OFF"
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([Limit.per_day("rpm", 20), Limit.per_day("tpm", 9000)])
        for name in ("key-1", ODD_NAME):
            repository.create_entity(name, parent_id="team", cascade=True)
        limiter = SyncRateLimiter(repository)
        for name, rpm, tpm in (("key-1", 3, 500), (ODD_NAME, 2, 700), ("alone", 20, 30)):
            with limiter.acquire(name, "gpt-4", {"rpm": rpm, "tpm": tpm}):
                pass
        for _ in range(4):
            with pytest.raises(RateLimitExceeded), limiter.acquire("alone", "gpt-4", {"rpm": 1}):
                pass
    return url


def test_totals_of_a_family_count_each_token_once(cli, family):
    found = cli("usage", "summary", "--output", "json", "--url", family).json
    assert found["total"] == {"rpm": 25, "tpm": 1230}
    assert found["through_children"] == {"rpm": 5, "tpm": 1200}
    assert (found["rejected"], found["window_count"], found["snapshot_count"]) == (4, 1, 4)
    text = cli("usage", "summary", "--url", family).out
    assert "the total counts each token once" in text
    assert "4 calls rejected (approximate)" in text
    of_team = cli("usage", "summary", "-e", "team", "--output", "json", "--url", family).json
    assert of_team["total"] == {"rpm": 5, "tpm": 1200}


def test_a_summary_counts_rejected_calls_without_any_tokens(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/rejected.db?synchronous=OFF"
    with SyncRepository.open(url=url) as repository:
        limits = [Limit.per_day("rpm", 1)]
        limiter = SyncRateLimiter(repository)
        with pytest.raises(RateLimitExceeded), limiter.acquire("key-1", "a", {"rpm": 2}, limits):
            pass
    found = cli("usage", "summary", "--url", url)
    assert "1 call rejected (approximate)" in found.out, found
    assert "1 call rejected (approximate)" in cli("usage", "summary", "-A", "--url", url).out


def test_a_list_shows_rejected_calls_and_what_came_through_children(cli, family):
    lines = cli("usage", "list", "--url", family).out.splitlines()
    assert lines[0].endswith("calls  rejected  waited  through children")
    team = next(line for line in lines if " team " in line)
    assert team.endswith("rpm 5, tpm 1,200")
    alone = next(line for line in lines if " alone " in line)
    assert alone.split()[3:] == ["20", "30", "1", "4", "0"]
    rows = list(
        csv.DictReader(io.StringIO(cli("usage", "list", "--output", "csv", "--url", family).out))
    )
    by_entity = {row["entity_id"]: row for row in rows}
    assert by_entity["team"]["tpm_through_children"] == "1200"
    assert by_entity["alone"]["rejected"] == "4"


def test_the_largest_consumers(cli, family):
    found = cli("usage", "top", "--by", "tpm", "--last", "24h", "--output", "json", "--url", family)
    assert [usage["entity_id"] for usage in found.json["consumers"]] == [ODD_NAME, "key-1", "alone"]
    (team,) = found.json["parents"]
    assert (team["entity_id"], team["counters"]["tpm"]) == ("team", 1200)
    one = cli("usage", "top", "--limit", "1", "--url", family).out.splitlines()
    assert one[0].split() == ["#", "entity", "rpm", "tpm", "calls", "rejected", "waited"]
    assert one[2].split() == ["1", "alone", "20", "30", "1", "4", "0"]
    assert one[4].split()[:3] == ["#", "parent", "rpm"]
    rows = csv.DictReader(
        io.StringIO(cli("usage", "top", "--by", "rpm", "--output", "csv", "--url", family).out)
    )
    assert [(row["kind"], row["entity_id"]) for row in rows] == [
        ("consumer", "alone"),
        ("consumer", "key-1"),
        ("consumer", ODD_NAME),
        ("parent", "team"),
    ]


def test_buckets_show_what_they_rejected(cli, family):
    found = cli("bucket", "list", "--output", "json", "--url", family).json["buckets"]
    assert {bucket["entity_id"]: bucket["rejected"] for bucket in found} == {
        "alone": 4,
        "key-1": 0,
        ODD_NAME: 0,
        "team": 0,
    }
    lines = cli("bucket", "list", "-e", "alone", "--url", family).out.splitlines()
    assert lines[0].split()[-1] == "rejected"
    assert lines[2].split()[-1] == "4"


# --- CSV -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", "=+-@")
def test_a_cell_of_csv_is_never_a_formula(cli, tmp_path, first):
    url = f"sqlite:///{tmp_path}/formulas.db?synchronous=OFF"
    entity_id = f"{first}cmd|' /C calc'!A0"
    clock = FakeClock(int(time.time() * 1000) - 3_600_000)
    with SyncRepository.open(url=url) as repository:
        limiter = SyncRateLimiter(repository, clock=clock)
        with limiter.acquire(entity_id, "gpt-4", {"rpm": 7}, [Limit.per_day("rpm", 9)]) as lease:
            clock.advance(hours=1)
            lease.adjust(rpm=-4)  # a refund belongs to the hour in which it is made
    for command in ("list", "top", "list -A", "top -A"):
        out = cli("usage", *command.split(), "--output", "csv", "--url", url).out
        rows = list(csv.reader(io.StringIO(out)))
        assert all(row[0][:1] not in first for row in rows)
        assert f"'{entity_id}" in rows[1]
        cells = {cell for row in rows for cell in row}
        assert ("-4" in cells) == command.startswith("list")  # a number stays one


# --- HTML ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects texts and attributes, and checks that elements are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def check_self_contained(page, text):
    assert not {"script", "link", "img", "iframe", "object", "a", "use", "image", "b"} & set(
        page.tags
    )
    assert not {"src", "href", "xlink:href", "onclick"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "//" not in text.replace("<!DOCTYPE html>", "")


@pytest.mark.parametrize("command", ["list", "summary"])
def test_a_page_is_self_contained_and_shows_everything(cli, family, command):
    text = cli("usage", command, "--output", "html", "--url", family).out
    page = Page(text)
    check_self_contained(page, text)
    charts = [value for name, value in page.attributes if (name, value) == ("role", "img")]
    assert len(charts) == 2 + 1  # one for each limit, and one of rejected calls
    assert "rpm: net tokens per hour, 25 in all, each token once" in page.texts
    assert any(text.startswith("Usage of 3 entities in namespace default") for text in page.texts)
    assert "1 hour with usage." in page.texts
    assert ODD_NAME in page.texts
    assert "rpm 5, tpm 1,200" in page.texts
    assert "4 calls were rejected, 0 waited." in page.texts


def test_a_page_counts_one_call_in_the_singular():
    window = UsageSnapshot("key", "r", "2026-01-01T00:00:00Z", "", "hourly", {"rpm": 1}, 1)
    summary = UsageSummary(1, {"rpm": 1}, {"rpm": 1.0}, "x", "y", window_count=1, rejected=1)
    texts = Page(usage_page([window], "hourly", summary)).texts
    assert {"1 hour with usage.", "1 call was rejected, 0 waited."} <= set(texts)


def test_a_page_of_the_largest_consumers_goes_to_a_file(cli, family, tmp_path):
    file = tmp_path / "top.html"
    args = ("usage", "top", "--by", "tpm", "--output", "html", "-o", file, "--url", family)
    assert cli(*args).out == ""
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    check_self_contained(page, text)
    assert ODD_NAME in page.texts


def test_a_page_of_nothing_says_so(cli, family):
    text = cli("usage", "list", "-e", "nobody", "--output", "html", "--url", family).out
    assert "No usage is recorded for this selection." in Page(text).texts


def test_a_page_of_many_windows_stays_small():
    windows = [
        UsageSnapshot(
            "key", "r", f"2026-01-{day + 1:02}T{hour:02}:00:00Z", "", "hourly", {"rpm": hour - 9}, 1
        )
        for day in range(28)
        for hour in range(24)
    ] * 3
    summary = UsageSummary(len(windows), {"rpm": 1}, {"rpm": 1.0}, "x", "y", window_count=672)
    text = usage_page(windows, "hourly", summary)
    page = Page(text)
    assert len(text) < 400_000
    assert page.tags.count("tr") == 2 + 1 + MAX_ROWS
    assert f"The first {MAX_ROWS:,} of {len(windows):,} windows are listed." in page.texts
    assert any(
        "-9" in str(value) or text.startswith("-") for text in page.texts for value in [text]
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list", "--output", "html", "--plot"), "--plot draws in the terminal"),
        (("list", "--output", "csv", "--file", "x"), "--file goes with"),
        (("top", "--output", "csv", "--file", "x"), "--file goes with --output html"),
    ],
)
def test_options_that_contradict_each_other(cli, family, args, said):
    assert said in cli("usage", *args, "--url", family).error(2)


@pytest.mark.each_value_once
@pytest.mark.parametrize("output", ["table", "json", "csv", "html"])
@pytest.mark.parametrize("everywhere", [[], ["--all-namespaces"]])
def test_a_ranking_by_an_unknown_name_is_refused(cli, family, tmp_path, output, everywhere):
    rest = [*everywhere, "--output", output, "--url", family]
    file = tmp_path / "top.html"
    rest += ["--file", file] if output == "html" else []
    error = cli("usage", "top", "--by", "tmp", *rest).error(2)
    assert "cannot rank by 'tmp'" in error
    assert "no call has used this limit (did you mean 'tpm'?); limits with usage: rpm, tpm" in error
    error = cli("usage", "top", "--by", "tpm", "-r", "gtp-4", *rest).error(2)
    assert "resource 'gtp-4' is not known (did you mean 'gpt-4'?)" in error
    assert "resources in use: gpt-4" in error
    assert not file.exists()


def test_a_ranking_of_a_known_resource_without_usage_is_empty(cli, family):
    cli("resource", "set-defaults", "quiet", "-l", "rpm:5", "--url", family)
    ran = cli("usage", "top", "--by", "rpm", "-r", "quiet", "--url", family)
    assert ran.code == 0
    assert "no usage" in ran.err


def test_a_limit_that_only_another_namespace_uses_can_rank_all(cli, family):
    cli("namespace", "register", "other", "--url", family)
    ran = cli("usage", "top", "--by", "tpm", "-A", "--output", "json", "--url", family)
    assert [each["namespace"] for each in ran.json["consumers"]] == ["default"] * 3
