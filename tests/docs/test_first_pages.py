"""The first pages are short, and their figures are those of the pages that they name."""

import re

import pytest

from tests.docs.pages import DOCS, LINK, ROOT, prose, text_of

README = ROOT / "README.md"
AFTER_THE_FIRST = ["getting-started.md", "guide/basic-usage.md", "guide/limit-kinds.md"]


def words(page):
    return len(page.read_text(encoding="utf-8").split())


def test_the_readme_has_at_most_ten_links():
    assert len(re.findall(rf"(?<!!){LINK.pattern.removeprefix('!?')}", prose(README))) <= 10


@pytest.mark.parametrize("first", [README, DOCS / "index.md"], ids=["readme", "site"])
def test_the_way_for_beginners_is_as_short_as_it_says(first):
    way = [first, *(DOCS / page for page in AFTER_THE_FIRST)]
    (stated,) = re.findall(r"way for beginners\*\* has about ([\d,]+) words", prose(first))
    assert all(page in first.read_text(encoding="utf-8") for page in AFTER_THE_FIRST)
    counted = sum(words(page) for page in way)
    assert counted <= 3_000
    assert abs(counted - int(stated.replace(",", ""))) <= 100


def test_the_figures_of_the_site_are_those_of_the_measurements():
    first, measured = text_of("index.md"), text_of("performance/index.md")
    assert "28,194 acquires a second" in first
    assert "| 1 process × 200 tasks | 28,194 |" in measured
    killed = re.findall(
        r"^\| kill -9 of clients \| ours \w+ \| \d+ \| ([\d,]+) \| (\d+) \| 0 \|",
        text_of("reliability/index.md"),
        re.MULTILINE,
    )
    operations, kills = (
        sum(int(n.replace(",", "")) for n in each) for each in zip(*killed, strict=True)
    )
    assert f"in {operations:,} operations while {kills} processes were killed" in first
