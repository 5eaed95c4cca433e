"""Most mutants of a seeded sample of the admission code are noticed by its tests.

A mutant is a copy of the source with one small change, made by cosmic-ray: another comparison, a
number that is one larger, a condition that is negated. Some mutants cannot be noticed, because the
change has no effect, so a share of them may survive: ``--log-cli-level=INFO`` shows them.
"""

import logging
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cosmic_ray import work_item
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator, operator_names

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
SEED = 1
SAMPLE = 120
LEAST = 10  # mutants that are tried on a slow machine
BUDGET_S = 15 * 60
TIMES_SLOWER = 4  # than the unchanged source: such a mutant counts as noticed
MOST_SURVIVORS = 0.4
# Changes that a test can notice. The others replace, say, `is` by `==`, or `|` in annotations.
OPERATORS = re.compile(
    r"core/("
    r"ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Mod_FloorDiv)"
    r"|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_GtE|GtE_Lt|Gt_LtE|LtE_Gt)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)"
    r"|ReplaceUnaryOperator_(USub_UAdd|Delete_USub|Delete_Not)"
    r"|Replace(TrueWithFalse|FalseWithTrue|AndWithOr|OrWithAnd)"
    r"|Replace(BreakWithContinue|ContinueWithBreak)"
    r"|AddNot|NumberReplacer|ZeroIterationForLoop)"
)
# Tests without real time: a busy machine must not make one of them fail.
TESTS = [
    "unit/test_charging.py",
    "unit/test_leases.py",
    "unit/test_slots.py",
    "unit/test_bucket.py",
    "unit/test_resolution.py",
    "unit/test_rejection_counts.py",
    "unit/test_waiting_line.py",
    "unit/test_tallies.py",
    "unit/test_calendar.py",
    "unit/test_quota_ledger.py",
    "unit/test_quota_races.py",
    "unit/test_usage_report.py",
    "unit/dynamodb/test_pauses.py",
    "unit/dynamodb/test_hour_updates.py",
    "unit/dynamodb/test_layout.py",
    "unit/dynamodb/test_planning.py",
    "unit/dynamodb/test_planned_quotas.py",
    "unit/dynamodb/test_hold_writes.py",
    "unit/dynamodb/test_shard_affinity.py",
    "unit/dynamodb/test_stored_form.py",
    "property/test_calendar.py",
    "property/test_limit_notation.py",
    "property/test_mode_groups.py",
    "property/test_quota_guards.py",
    "property/test_quota_histories.py",
    "property/test_stored_form.py",
    "property/test_moves.py",
    "property/test_reservations.py",
    "property/test_admission.py",
    "property/test_bucket_arithmetic.py",
    "property/test_lease_histories.py",
    "property/test_shards.py",
    "property/test_layouts.py",
    "property/test_combined_shards.py",
    "property/test_repayments.py",
    "property/test_spilled.py",
    "property/test_slots.py",
    "property/test_engines_against_model.py",
]


def mutations(folder):
    """Return every change that the operators can make in the modules of a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name in filter(OPERATORS.fullmatch, operator_names()):
            operator = get_operator(name)()
            places = [place for node in nodes for place in operator.mutation_positions(node)]
            found += [
                work_item.MutationSpec(
                    module_path=path,
                    operator_name=name,
                    occurrence=number,
                    start_pos=start,
                    end_pos=end,
                )
                for number, (start, end) in enumerate(places)
            ]
    return found


def command_for(source):
    """Return the command that runs the tests on a copy of the source; the first failure ends it."""
    settings = {"PYTHONPATH": source, "CI": 1, "ZAEL_PROPERTY_EXAMPLES": 10}
    set_up = " ".join(f"{name}={value}" for name, value in settings.items())
    options = "-q -x --tb=no -p no:xdist -p no:cacheprovider -m 'not slow'"
    planted = "-k 'not planted and not wrong_rule'"  # these test the simulations
    tests = " ".join(str(ROOT / "tests" / each) for each in TESTS)
    root = f"-c {ROOT / 'pyproject.toml'} --rootdir {ROOT}"
    bounded = f"timeout --kill-after=5 {BUDGET_S}"  # also if this test itself is killed
    return f"{bounded} env {set_up} {sys.executable} -m pytest {options} {planted} {root} {tests}"


@pytest.mark.slow
@pytest.mark.timeout(2 * BUDGET_S)
def test_most_mutants_are_noticed(tmp_path):
    began_s = time.monotonic()
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = command_for(source)
    unchanged = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert unchanged.returncode == os.EX_OK, unchanged.stdout
    timeout_s = TIMES_SLOWER * (time.monotonic() - began_s)

    everything = mutations(source / "zae_limiter" / "admission")
    sample = random.Random(SEED).sample(everything, SAMPLE)
    tried, survivors = 0, []
    for mutation in sample:
        left_s = BUDGET_S - (time.monotonic() - began_s)
        if left_s < timeout_s / 2:  # a survivor needs a quarter of the time limit
            break
        result = mutate_and_test([mutation], command, min(timeout_s, left_s))
        tried += 1
        if result.test_outcome is not work_item.TestOutcome.KILLED:
            survivors.append(result.diff)
            logger.info("%s of %s survive; the last one:\n%s", len(survivors), tried, result.diff)
    assert tried >= LEAST
    report = f"{len(survivors)} of {tried} mutants survive; {len(everything)} are possible"
    logger.info(report)
    assert len(survivors) <= MOST_SURVIVORS * tried, "\n".join([report, *survivors])
