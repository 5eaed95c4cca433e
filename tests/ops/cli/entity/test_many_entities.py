"""Very many entities: listings print at once, a purge shows progress and can be resumed."""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.bulk import bulk_store
from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.stores import sqlite_first
from tests.ops.cli.terminal import ANSI, CTRL_C, MODULE, environment, terminal
from zae_limiter import SyncRepository

MANY = 100_000
FILLING = pytest.mark.timeout(900)  # 100,000 items take two minutes on a starved machine
SIZES = [
    pytest.param(("sqlite", 5000), id="sqlite", marks=pytest.mark.slow),
    pytest.param(("sqlite", MANY), id="sqlite-many", marks=pytest.mark.slow),
    pytest.param(("dynamodb", 1200), id="dynamodb"),
    pytest.param(("dynamodb", MANY), id="dynamodb-many", marks=[pytest.mark.slow, FILLING]),
]
EVERYTHING = ("entity", "list")
CUSTOM = (*EVERYTHING, "--with-custom-limits", "gpt-4")
CHILDREN = (*EVERYTHING, "--parent", "project")
SOON_S = 2  # start-up included; on an idle machine it is less than half of that
SOON_CPU_S = 1  # on a starved machine: the start takes 0.3 s, reading 100,000 of them 2 s or more


class Store(NamedTuple):
    url: str
    count: int


@pytest.fixture(scope="module", params=SIZES)
def big(request, tmp_path_factory):
    engine, count = request.param
    with bulk_store(engine, tmp_path_factory.mktemp("big"), count) as (url, _):
        yield Store(url, count)


@pytest.fixture
def run(capsys, clean_environment):
    """Run a command in this process."""
    return CommandLine(capsys, "")


def first_entity_after(url, *args):
    """Return whether the first entity was printed soon, and the output."""
    with subprocess.Popen(
        [*MODULE, *args, "--url", url], stdout=subprocess.PIPE, env=environment(), text=True
    ) as process:
        first = ""
        with Stopwatch() as watch:
            while "key-" not in first:
                line = process.stdout.readline()
                assert line, first
                first += line
        is_soon = watch.within(SOON_S) or _cpu_seconds(process.pid) < SOON_CPU_S
        rest = process.stdout.read()
    assert process.returncode == 0
    return is_soon, first + rest


def _cpu_seconds(pid):
    """Return the CPU time of a process so far; infinite where the system does not show it."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return math.inf
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("args", "more"),
    [
        (EVERYTHING, ()),
        (CHILDREN, ("--all",)),
        pytest.param(CUSTOM, (), marks=pytest.mark.slow),
        pytest.param(EVERYTHING, ("--all",), marks=pytest.mark.slow),
        pytest.param(CUSTOM, ("--all",), marks=pytest.mark.slow),
        pytest.param(CHILDREN, (), marks=pytest.mark.slow),
    ],
)
def test_a_listing_starts_to_print_soon(big, args, more):
    is_soon, text = first_entity_after(big.url, *args, *more)
    assert is_soon
    expected = big.count if more else 100
    assert sum(line.startswith("key-") for line in text.splitlines()) == expected


@pytest.mark.parametrize(
    "args", [CUSTOM, pytest.param(EVERYTHING, marks=pytest.mark.slow)], ids=" ".join
)
def test_json_of_all_of_them_streams_and_is_whole(big, args):
    is_soon, text = first_entity_after(big.url, *args, "--all", "--output", "json")
    assert is_soon
    data = json.loads(text)
    assert len({each["entity_id"] for each in data["entities"]}) == big.count
    assert data["next_cursor"] is None


@pytest.mark.parametrize("args", [EVERYTHING, CUSTOM, CHILDREN], ids=" ".join)
def test_pages_join_without_gap_or_overlap(big, args, capsys, clean_environment):
    """Compare all entities, or only the last 4,000 if the listing is ordered by id."""
    in_order = args != EVERYTHING or big.url.startswith("sqlite")
    skipped = max(0, big.count - 4000) if in_order else 0
    command = CommandLine(capsys, big.url)
    ids, cursor = [], ["--cursor", f"key-{skipped - 1:06d}"] if skipped else []
    limit = str((big.count - skipped) // 2 - 1)
    while cursor != ["--cursor", None]:
        page = command(*args, "--limit", limit, *cursor, "--output", "json", "--url", big.url).json
        ids += [each["entity_id"] for each in page["entities"]]
        cursor = ["--cursor", page["next_cursor"]]
    expected = [f"key-{number:06d}" for number in range(skipped, big.count)]
    assert sorted(ids) == expected
    assert ids == expected or not in_order


def test_a_reader_that_has_seen_enough_ends_the_listing_without_a_word(big):
    with subprocess.Popen(
        [*MODULE, *EVERYTHING, "--all", "--url", big.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 1


def test_a_listing_can_be_interrupted(big):
    with terminal(*EVERYTHING, "--all", "--url", big.url) as screen:
        screen.read_until("key-000")
        screen.press(CTRL_C)
        assert screen.wait() == 130, screen.output[-300:]
    assert "Traceback" not in screen.output
    assert screen.output.rstrip().endswith("every change was made completely or not at all")


def test_a_mistyped_entity_is_found_out_fast(big, run):
    with Stopwatch() as watch:
        found = run("entity", "show", "key-00012", "--url", big.url)
    assert watch.within(3)
    assert found.code == 1
    assert "did you mean 'key-00" in found.err


def test_deleting_the_parent_of_very_many_asks_soon(big, run):
    with Stopwatch() as watch:
        found = run("entity", "delete", "project", "--url", big.url)
    assert watch.within(5)
    assert found.code == 1
    assert "entity 'project' does not exist" in found.err
    with SyncRepository.open(url=big.url) as repository:
        repository.create_entity("project")
    found = run("entity", "delete", "project", "--url", big.url)
    assert (
        "1,000 or more entities under it ('key-000000', 'key-000001', 'key-000002', ...) "
        "will still have it as parent: children that cascade charge 'project' under the defaults"
    ) in found.err
    assert run("entity", "delete", "project", "--yes", "--url", big.url).code == 0


@sqlite_first
def test_a_purge_shows_progress_is_interrupted_and_resumed(engine, tmp_path, run):
    count = 300_000 if engine == "sqlite" else 1500
    with bulk_store(engine, tmp_path, count, "tenant") as (url, namespace_id):
        assert run("namespace", "delete", "tenant", "--yes", "--url", url).code == 0
        with terminal("namespace", "purge", namespace_id, "--url", url) as screen:
            screen.read_until("Purge it? [y/N]:")
            assert "It cannot be undone" in " ".join(screen.output.split())
            screen.press(b"y\n")
            screen.read_until("rows removed")
            screen.press(CTRL_C)
            assert screen.wait() == 130
        text = " ".join(ANSI.sub("", screen.output).split())
        assert "interrupted after at least " in text
        assert f"remove the rest: zae-limiter namespace purge {namespace_id}" in text
        assert "Traceback" not in text
        with SyncRepository.open(url=url) as repository:
            (left,) = repository.list_orphan_namespaces()
            assert (left.namespace_id, left.status) == (namespace_id, "purging")
        found = run("namespace", "recover", namespace_id, "--url", url)
        assert "only a deleted one can be recovered" in found.err
        found = run("namespace", "purge", namespace_id, "--yes", "--output", "json", "--url", url)
        assert 0 < found.json["removed_rows"] < 2 * count
        left = run("namespace", "orphans", "--output", "json", "--url", url)
        assert left.json == {"namespaces": []}
