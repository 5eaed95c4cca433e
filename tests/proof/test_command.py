"""The command: its table, results that are kept, faults that never fired, and a real short run."""

import pytest

from proof.__main__ import SHORT, Case, main, shortest
from proof.checker.history import read_history
from proof.checker.verdict import check
from proof.harness.faults import FAULTS
from proof.harness.plan import MEMORY, OURS, SUBJECTS
from proof.table import HEAD, Result, not_applicable, result_of, row, table
from tests.proof.simulation import Exact, findings
from tests.proof.test_checker import AdmitsOneTooMany


def test_a_row_has_the_worst_of_all_seeds():
    results = [result_of(findings(limiter, 100)) for limiter in (Exact(1), AdmitsOneTooMany(2))]
    cells = dict(zip(HEAD, row(results), strict=True))
    assert cells["seeds"] == "2"
    assert float(cells["excess"]) > 0
    assert int(cells["operations"].replace(",", "")) == sum(each.operations for each in results)


def test_the_table_is_markdown_whose_columns_are_aligned():
    rows = [
        row([result_of(findings(Exact(1), 50))]),
        not_applicable("full disk", MEMORY, "no file"),
    ]
    lines = table(rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].strip("|-") == ""


def test_a_result_that_was_kept_is_read_again(tmp_path):
    result = result_of(findings(AdmitsOneTooMany(1), 100))
    result.save(tmp_path / "results" / "one.json")
    assert Result.load(tmp_path / "results" / "one.json") == result


def test_a_failure_shows_the_operations_of_the_worst_window():
    limiter = AdmitsOneTooMany(1)
    history = limiter.history(400)
    lines = shortest(history, check(history))
    assert lines
    assert all("ms p " in line for line in lines)
    assert len(lines) < len(history.operations)


def test_nothing_is_shown_of_a_history_without_excess():
    history = read_history(Exact(1).lines)
    assert shortest(history, check(history)) == []


def test_every_fault_applies_to_a_subject_or_says_why_not():
    for name, fault in FAULTS.items():
        assert set(fault.subjects) <= set(SUBJECTS)
        for subject in SUBJECTS:
            reason = Case(subject, name).reason
            assert subject in fault.subjects or reason


def test_the_short_form_has_all_engines():
    assert {subject for subject, _ in SHORT} == set(OURS)
    assert all(fault in FAULTS for _, fault in SHORT)


@pytest.mark.slow
def test_a_run_keeps_every_promise_and_is_resumed(tmp_path, capsys):
    arguments = ["--subjects", MEMORY, "--faults", "none", "--seeds", "1", "--seconds", "4"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert "| none " in first
    assert main([*arguments, "--out", str(tmp_path), "--resume"]) == 0
    assert capsys.readouterr().out == first
