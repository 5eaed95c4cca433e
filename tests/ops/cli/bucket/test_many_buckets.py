"""Very many buckets: the first page prints at once, the most used ones are found among all."""

import json
import re

import pytest

from tests.ops.cli.bulk import bulk_buckets
from tests.ops.cli.entity.test_many_entities import FILLING, MANY, Store, first_entity_after
from tests.ops.cli.terminal import run, terminal

SIZES = [
    pytest.param(("sqlite", 3000), id="sqlite", marks=pytest.mark.slow),
    pytest.param(("sqlite", MANY), id="sqlite-many", marks=pytest.mark.slow),
    pytest.param(("dynamodb", 1000), id="dynamodb"),
    pytest.param(("dynamodb", MANY), id="dynamodb-many", marks=[pytest.mark.slow, FILLING]),
]


@pytest.fixture(scope="module", params=SIZES)
def used(request, tmp_path_factory):
    engine, count = request.param
    with bulk_buckets(engine, tmp_path_factory.mktemp("big"), count) as url:
        yield Store(url, count)


@pytest.mark.parametrize(
    "args", [(), pytest.param(("--resource", "gpt-4"), marks=pytest.mark.slow)], ids=" ".join
)
def test_the_first_page_of_buckets_is_printed_soon(used, args):
    is_soon, text = first_entity_after(used.url, "bucket", "list", *args)
    assert is_soon
    assert sum(line.startswith("key-") for line in text.splitlines()) == 100


def test_entities_that_were_never_created_are_listed_soon(used):
    is_soon, text = first_entity_after(used.url, "entity", "list")
    assert is_soon
    assert sum("in use, not registered" in line for line in text.splitlines()) == 100


def test_all_buckets_stream_as_json(used):
    is_soon, text = first_entity_after(used.url, "bucket", "list", "--all", "--output", "json")
    assert is_soon
    data = json.loads(text)
    assert len({bucket["entity_id"] for bucket in data["buckets"]}) == used.count
    assert data["next_cursor"] is None


def test_the_most_used_are_found_among_all(used):
    found = run("bucket", "list", "--sort", "used", "--limit", "10", "--url", used.url)
    assert sum(line.startswith("key-") for line in found.stdout.splitlines()) == 10
    assert f"read {used.count:,} buckets" in found.stderr
    assert "so far" not in found.stderr


def test_a_terminal_shows_how_many_were_read_so_far(used):
    with terminal("bucket", "list", "--sort", "used", "--url", used.url, columns=100) as screen:
        assert screen.wait() == 0
    pages = re.findall(r"reading all buckets: ([\d,]+) so far", screen.output)
    assert pages == sorted(pages, key=lambda count: int(count.replace(",", "")))
    assert pages[-1] == f"{used.count:,}"
