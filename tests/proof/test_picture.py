"""The picture of decisions during faults: what it counts, shows and refuses."""

import gzip
import json
from xml.etree import ElementTree

import pytest

from proof.checker.history import ADMITTED, REJECTED, UNKNOWN, read_history
from proof.picture import joined, main, panel_of, ticks

MS = 1_000_000
RUN = {"kind": "run", "subject": "ours <sqlite>", "fault": "full disk", "seed": 1, "wall_ns": 0}
FAULT = {"kind": "fault", "name": "full", "begin": 100 * MS, "end": 400 * MS, "firings": 1}


def call(number, begin_ms, end_ms, outcome):
    """Return the lines of one call; without an outcome it was never answered."""
    begin = {
        "kind": "begin",
        "process": "p",
        "op": "acquire",
        "number": number,
        "amounts": {"plain/rpm": 1},
        "at": begin_ms * MS,
    }
    end = {**begin, "kind": "end", "outcome": outcome, "at": end_ms * MS}
    return [begin] if outcome is None else [begin, end]


def lines():
    records = [
        RUN,
        FAULT,
        *call(1, 0, 10, "admitted"),
        *call(2, 20, 120, "rejected"),
        *call(3, 150, 180, "admitted"),
        *call(4, 350, 0, None),
    ]
    return [json.dumps(record) for record in records]


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "history.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines()))
    return path


def test_a_call_counts_when_it_ended_and_when_it_began_if_it_never_did():
    panel = panel_of(read_history(lines()))
    assert list(panel.counts[ADMITTED][:4]) == [1, 1, 0, 0]
    assert list(panel.counts[REJECTED][:4]) == [0, 1, 0, 0]
    assert list(panel.counts[UNKNOWN][:4]) == [0, 0, 0, 1]
    assert panel.spans == {"full": [(0.1, 0.4)]}
    assert panel.most_a_second == 20


def test_the_picture_is_xml_that_says_in_words_what_it_shows(history, tmp_path):
    out = tmp_path / "picture.svg"
    assert main([str(out), str(history), str(history)]) == 0
    root = ElementTree.fromstring(out.read_text())
    described = root.find("{http://www.w3.org/2000/svg}desc").text
    assert described.count("ours <sqlite>, full disk: 2 admitted, 1 rejected, 1 unknown") == 2
    assert "a fault was active for 0.3 s" in described


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"{}"), gzip.compress(b"no json")],
    ids=["no gzip", "no run", "no JSON"],
)
def test_a_file_that_is_no_history_is_refused(tmp_path, capsys, content):
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        main([str(tmp_path / "picture.svg"), str(path)])
    assert "is not a whole history of a run" in capsys.readouterr().err


def test_a_history_is_not_overwritten_by_a_forgotten_name(history, capsys):
    before = history.read_bytes()
    with pytest.raises(SystemExit):
        main([str(history), str(history)])
    assert "does not end in .svg" in capsys.readouterr().err
    assert history.read_bytes() == before


def test_spans_that_overlap_or_nearly_touch_are_one():
    assert joined([(3.0, 4.0), (0.0, 2.0), (1.0, 2.5), (4.05, 5.0)]) == [(0.0, 2.5), (3.0, 5.0)]


@pytest.mark.parametrize(("most", "found"), [(0, [0]), (7, [0, 5]), (2500, [0, 1000, 2000])])
def test_ticks_are_few_and_round(most, found):
    assert list(ticks(most, 3)) == found
