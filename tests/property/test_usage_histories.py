"""Usage is exact in random histories of clients, crashes and lost messages, over a model table.

The real engine runs in virtual time. After every write, the stored usage must equal the ledger of
the writes that the table has applied; queries must show the usage at some moment of their reads.

``DEFECTS`` are tables that ignore one guard: the histories must find each of them. Guards that
random histories seldom need have directed histories in ``test_usage_guards``.

``ZAEL_HISTORIES=30000 make test-slow`` runs as many of them; ``ZAEL_SHORT_HISTORIES`` is the number
of histories in the fast tests.
"""

import os

import pytest

from tests.support.dynamodb.model import defects
from tests.support.dynamodb.model.defects import ignored_guard, table_with
from tests.support.dynamodb.model.history import History, Profile
from tests.support.dynamodb.model.ledger import Wrong

SHORT = int(os.environ.get("ZAEL_SHORT_HISTORIES", "9"))
LONG = int(os.environ.get("ZAEL_HISTORIES", "30000"))
AIMED_SHORT = max(1, SHORT // 15)
AIMED_LONG = 100
MOST_SEEDS = 100  # until a planted defect is found; most are found by the first history
PARTS = 3  # run by as many workers
LONG_PARTS = 30
LONG_FROM = 10_000
# The answer to a charge was lost, and others dropped one of its limits before it was found.
ONCE_WRONG = [14_800]
# Histories in which a guard matters that is seldom needed elsewhere.
AIMED = {
    "removed buckets return": Profile(
        removals=True,
        theme="delete",
        faults=0.3,
        clients=3,
        fault_kinds=("fault_after", "closed_idle_late"),
        reshapes=False,
        changes=False,
    ),
    "limits come and go": Profile(
        changes=True, theme="configure", steps=60, skew_s=0.0, reshapes=False, removals=False
    ),
    "shards come and go": Profile(reshapes=True, theme="merge", steps=60, cascade=True),
    "clocks are hours apart": Profile(skew_s=10_800.0, clients=6, steps=60, faults=0.03),
    "the processor is late": Profile(aggregator="shuffled", clients=4, steps=60),
    "buckets are busy when they go": Profile(
        removals=True, theme="delete", clients=6, steps=60, faults=0.0, skew_s=0.0
    ),
    "children come late": Profile(
        cascade=True, clients=5, steps=60, faults=0.0, changes=False, removals=False
    ),
    "limits of parents come and go": Profile(
        changes=True,
        theme="configure",
        steps=60,
        cascade=True,
        clients=5,
        skew_s=0.0,
        reshapes=False,
        removals=False,
    ),
    "usage is asked for all the time": Profile(
        theme="query", clients=5, steps=60, faults=0.0, removals=False, lag=False
    ),
    "buckets are paused": Profile(pauses=True, theme="pause", steps=60, clients=4),
    "paused buckets are split and merged": Profile(
        pauses=True, theme="pause", steps=60, reshapes=True, clients=3, faults=0.0, skew_s=0.0
    ),
    "limits of paused buckets change": Profile(
        pauses=True, theme="configure", changes=True, steps=60, reshapes=False, removals=False
    ),
    "anything may happen": Profile(),
}
# The same of quotas: what is left of them, and not the hour in which it was used.
QUOTAS = {
    "callers want more than there is": Profile(
        quotas=True,
        theme="burst",
        faults=0.1,
        clients=4,
        steps=60,
        skew_s=0.0,
        debts=False,
        reshapes=False,
        changes=False,
        removals=False,
    ),
    "holders crash": Profile(quotas=True, theme="crash", removals=True, faults=0.1, steps=60),
    "buckets are split and merged": Profile(
        quotas=True, theme="merge", reshapes=True, changes=False, steps=60
    ),
    "windows are topped up": Profile(
        quotas=True, theme="top_up", faults=0.1, steps=60, skew_s=0.0, changes=False, removals=False
    ),
    "limits change": Profile(quotas=True, theme="configure", changes=True, steps=60),
}
# The guard that is missing, and the histories that find it.
DEFECTS = {
    "a late write counts for an hour that is over": (
        ignored_guard("h", defects.is_late_write),
        "clocks are hours apart",
    ),
    "a first write counts for an hour that is over": (
        ignored_guard("h", defects.is_first_write),
        "anything may happen",
    ),
    "a turn is repeated within its hour": (
        ignored_guard("h", defects.is_turn),
        "anything may happen",
    ),
    "a turn drops an hour that it has not seen": (
        ignored_guard("ph", defects.is_turn_of_no_finished_hour),
        "anything may happen",
    ),
    "a turn drops an hour before it is stored": (defects.lost_rows, "anything may happen"),
    "a late clear drops the next finished hour": (
        ignored_guard("ph", defects.is_clear),
        "the processor is late",
    ),
    "a removal loses writes that came since": (
        ignored_guard("wc", defects.is_removal),
        "removed buckets return",
    ),
    "a removed bucket takes its hours along": (
        defects.lost_hours_of_removed_buckets,
        "removed buckets return",
    ),
    "the origin of a removed bucket returns": (
        defects.returning_origins(),
        "removed buckets return",
    ),
    "a split forgets the pause": (defects.lost_pause, "paused buckets are split and merged"),
}


@pytest.mark.parametrize("part", range(PARTS))
def test_usage_is_exact_in_random_histories(part):
    for seed in range(part, SHORT, PARTS):
        History(seed).run()


@pytest.mark.parametrize("aim", AIMED)
def test_usage_is_exact_where(aim):
    for seed in range(AIMED_SHORT):
        History(seed, AIMED[aim]).run()


@pytest.mark.parametrize("aim", QUOTAS)
def test_quotas_are_exact_where(aim):
    for seed in range(AIMED_SHORT):
        History(seed, QUOTAS[aim]).run()


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_usage_is_exact_in_histories_that_were_wrong_once(seed):
    History(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("aim", AIMED)
def test_usage_is_exact_in_many_histories_where(aim):
    for seed in range(AIMED_LONG):
        History(seed, AIMED[aim]).run()


@pytest.mark.slow
@pytest.mark.parametrize("aim", QUOTAS)
def test_quotas_are_exact_in_many_histories_where(aim):
    for seed in range(AIMED_LONG):
        History(seed, QUOTAS[aim]).run()


# Only the tenth history or so finds these; test_usage_guards has short ones for their guards.
FOUND_LATE = {
    "a first write counts for an hour that is over",
    "a turn is repeated within its hour",
    "a turn drops an hour that it has not seen",
    "a removal loses writes that came since",
}


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each in FOUND_LATE else [])
        for each in DEFECTS
    ],
)
def test_a_planted_defect_is_found(defect):
    ignored, aim = DEFECTS[defect]
    with pytest.raises(Wrong):
        run_histories(AIMED[aim], table_with(ignored))


@pytest.mark.parametrize("attribute", ["t_tpm", "y.*"], ids=["balance", "holds"])
def test_a_store_that_ignores_a_bound_of_quotas_is_found(attribute):
    ignored = ignored_guard(attribute, lambda kind, request: True)
    with pytest.raises(Wrong):
        run_histories(QUOTAS["callers want more than there is"], table_with(ignored))


def run_histories(profile, table):
    for seed in range(MOST_SEEDS):
        History(seed, profile, table=table).run()


def test_a_history_repeats_from_its_seed():
    one, other = (History(3).run() for _ in range(2))
    assert [change.new for change in one.table.stream if "op" in (change.new or {})] == [
        change.new for change in other.table.stream if "op" in (change.new or {})
    ]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(LONG_PARTS))
def test_usage_is_exact_in_many_more_histories(part):
    profiles = list(AIMED.values())
    for seed in range(LONG_FROM + part, LONG_FROM + LONG, LONG_PARTS):
        History(seed, profiles[seed // LONG_PARTS % len(profiles)]).run()
