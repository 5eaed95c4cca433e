"""The policies permit what all tests on DynamoDB call, and nothing that none of them calls.

The first requests of each test of the engine and of the contract suite are checked whenever they
run. Here these tests are run once more with all others that call the async tree in their own
process, and all requests are recorded: five to twelve minutes on two busy cores.
"""

import re
from collections import Counter

import pytest

from tests.integration.dynamodb.policies.exactness import faults, mutations
from tests.support import journal
from tests.support.policies import OWN
from tests.support.recorded_run import AT_MOST_S, recorded_run
from zae_limiter_ops.infra.statements import policy_documents

# Fewer than the 2,200 and 99,000 that were counted: a run that has recorded little fails.
FEWEST_TESTS, FEWEST_RIGHTS = 1900, 60_000
# A few may fail, as promises in seconds do on a busy machine: that is a matter of their own run.
MOST_FAILURES = 30
# Whose methods the holder of a policy calls, beside opening the store.
ROLES = {
    "acq": {"acq"},
    "read": {"read"},
    "full": {"acq", "read", "full", "administrator", "opening"},
    "ns-acq": {"acq"},
    "ns-read": {"read"},
    "ns-full": {"acq", "read", "full"},
}


@pytest.mark.slow
@pytest.mark.timeout(AT_MOST_S + 600)
def test_policies_permit_what_the_whole_suite_calls_and_nothing_else(tmp_path_factory, capsys):
    with capsys.disabled():
        folder, said = recorded_run(tmp_path_factory.getbasetemp())
    needed, reports = journal.read(folder)
    found = reports + shortcomings(said, needed.total()) + compared(needed)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("said", "rights"),
    [
        ("", 99_000),
        ("1899 passed in 300.00s", 99_000),
        ("31 failed, 2100 passed in 300.00s", 99_000),
        ("1 failed, 2100 passed, 30 errors in 300.00s", 99_000),
        ("2200 passed in 300.00s", 59_999),
    ],
)
def test_a_run_that_may_have_missed_calls_is_not_trusted(said, rights):
    assert shortcomings(said, rights)


def test_a_busy_machine_is_excused():
    assert not shortcomings("5 failed, 2199 passed in 696.86s (0:11:36)", 99_000)


def test_policies_that_nothing_was_called_under_are_all_reported():
    assert {line.split()[0] for line in compared(Counter())} == set(ROLES)


def compared(needed):
    """Return what the policies permit too much or too little, and mutants that pass for them."""
    found = []
    for policy, document in policy_documents().items():
        rights = of_holder(policy, needed)
        found += [f"{policy} {fault}" for fault in faults(policy, document, rights, OWN)]
        found += [
            f"{policy} may be {mutant}"
            for mutant in mutations(document)
            if not faults(policy, mutant, rights, OWN)
        ]
    return found


def shortcomings(said, rights):
    """Return why the run may have missed calls."""
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", said)
    }
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if counts.get("passed", 0) < FEWEST_TESTS or failed > MOST_FAILURES:
        return [f"{counts} of the tests: {said[-5000:]}"]
    return [] if rights >= FEWEST_RIGHTS else [f"only {rights} rights were needed"]


def of_holder(policy, needed):
    """Return the rights that the holder of a policy needs; to open is to read the registry."""
    return {
        access
        for role, access in needed
        if role in ROLES[policy] or (role == "opening" and access.call == "GetItem")
    }
