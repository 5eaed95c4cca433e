"""Quotas are exact in random histories of clients, faults and administration, over a model table.

Clients with different clocks charge, hold, renew and settle; messages are late or lost, processes
stop and die, limits change, buckets are split, merged and forgotten. After every write, levels,
holds, usage and thresholds must agree with a ledger of what the calls have really cost.

``DEFECTS`` are rules, clients and worlds that lack one guard: the histories must find each of them.
Guards that random histories seldom need have directed histories in ``test_quota_guards``.

``ZAEL_QUOTA_HISTORIES=10000 make test-slow`` runs as many of them.
"""

import os

import pytest

from tests.support.quotas import defects
from tests.support.quotas.client import Client
from tests.support.quotas.ledger import Wrong
from tests.support.quotas.world import Profile, World

LONG = int(os.environ.get("ZAEL_QUOTA_HISTORIES", "10000"))
LONG_PARTS = 20
LONG_FROM = 1000
MOST_SEEDS = 60  # until a planted defect is found; most are found by the first history
CALENDARS = ("minute", "two minutes", "three minutes")
AIMED = {
    "nothing goes wrong": Profile(),
    "messages are lost, processes stop and die": Profile(losses=0.05, stops=True, crashes=True),
    "clocks are seconds apart": Profile(skew_ms=5000, soft=True, shadows=0.1),
    "one clock is wrong": Profile(far_skew_ms=130_000, resets=True, losses=0.02, tops_up=True),
    "time zone data differ": Profile(shift_ms=20_000, losses=0.02, stops=True),
    "windows are topped up and reset": Profile(tops_up=True, resets=True),
    "administration and faults": Profile(
        tops_up=True, resets=True, losses=0.05, stops=True, crashes=True, skew_ms=3000
    ),
    "amounts change": Profile(amounts=True, tops_up=True, losses=0.02, stops=True),
    "calendars and kinds change": Profile(
        calendars=True,
        amounts=True,
        tops_up=True,
        resets=True,
        losses=0.02,
        stops=True,
        kinds=(*CALENDARS, "first use"),
    ),
    "limits change there and back": Profile(
        calendars=True,
        returns=True,
        pause_ms=2000,
        kinds=(*CALENDARS, "first use"),
        hold_ttls=(20, None),
        limits=1,
    ),
    "buckets are split and merged": Profile(shards=True, kinds=CALENDARS[:2]),
    "split buckets and faults": Profile(
        shards=True,
        kinds=CALENDARS[:2],
        losses=0.05,
        stops=True,
        crashes=True,
        tops_up=True,
        skew_ms=3000,
    ),
    "calls use several resources": Profile(
        buckets=("all-models", "gpt-4"), losses=0.03, crashes=True, shadows=0.1, soft=True
    ),
    "calls come in groups": Profile(shadows=0.3, pause_ms=1500, clients=2),
    "items are forgotten": Profile(forgets=True, skew_ms=5000, hold_ttls=(2, 4)),
    "holds expire while calls go on": Profile(
        hold_ttls=(2, 4),
        stops=True,
        crashes=True,
        losses=0.1,
        clients=8,
        skew_ms=5000,
        kinds=("first use", "minute"),
        limits=1,
        largest=10,
    ),
    "estimates are upper bounds": Profile(overruns=False, tops_up=True),
    "windows begin with their first use": Profile(kinds=("first use",), clients=6, pause_ms=8000),
}
# The guard that is missing, and the histories that find it.
DEFECTS = {
    defects.CreditsLateRefunds: "nothing goes wrong",
    defects.DropsRefundsByItsClock: "clocks are seconds apart",
    defects.HoldsWithoutWindow: "messages are lost, processes stop and die",
    defects.SettlesWithoutHold: "holds expire while calls go on",
    defects.RenewsWithoutHold: "one clock is wrong",
    defects.ForgetsRenewals: "nothing goes wrong",
    defects.SweepsTwice: "messages are lost, processes stop and die",
    defects.UnboundSettlements: "holds expire while calls go on",
    defects.TurnsFirstUseByNumber: "windows begin with their first use",
    defects.TurnsTwice: "nothing goes wrong",
    defects.OverwritesBuckets: "nothing goes wrong",
    defects.ChargesEarlierWindows: "one clock is wrong",
    defects.AdmitsMore: "nothing goes wrong",
    defects.MovesBack: "one clock is wrong",
    defects.TopsUpByAdding: "split buckets and faults",
    defects.ResetsBySetting: "administration and faults",
    defects.SweepsUnnamed: "windows are topped up and reset",
    defects.SubtractsSweptHolds: "messages are lost, processes stop and die",
    defects.SweepsForNoChild: "messages are lost, processes stop and die",
    defects.NamesNoChild: "messages are lost, processes stop and die",
    defects.RaisesWhatItSees: "nothing goes wrong",
    defects.MarksOnOldImages: "windows are topped up and reset",
    defects.MarksTwice: "nothing goes wrong",
    defects.SetsOtherAmounts: "amounts change",
    defects.KeepsNumbers: "calendars and kinds change",
    defects.ReusesNumbers: "limits change there and back",
    defects.ForgetsTopUps: "calendars and kinds change",
    defects.ChargesBeforeShadows: "calls come in groups",
    defects.RetriesAtItsOwnEdge: "time zone data differ",
    defects.ForgetsAtTheEdge: "items are forgotten",
    defects.JoinsNoLaterWindow: "time zone data differ",
    defects.MergesOverWrites: "split buckets and faults",
    defects.SplitsByAdding: "buckets are split and merged",
}


@pytest.mark.parametrize("aim", AIMED)
def test_quotas_are_exact_in_random_histories(aim):
    world = World(0, AIMED[aim]).run()
    assert world.admitted > 10
    assert world.rejected > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(LONG_PARTS))
def test_quotas_are_exact_in_many_histories(part, record_property):
    aims, seeds = list(AIMED), range(LONG_FROM + part, LONG_FROM + LONG, LONG_PARTS)
    writes = admitted = rejected = 0
    for seed in seeds:
        world = World(seed, AIMED[aims[seed % len(aims)]]).run()
        writes += world.table.writes
        admitted, rejected = admitted + world.admitted, rejected + world.rejected
    record_property(
        "histories, writes, admitted, rejected", (len(seeds), writes, admitted, rejected)
    )


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(defect):
    with pytest.raises(Wrong):
        run_with(defect, AIMED[DEFECTS[defect]])


def run_with(defect, profile):
    """Run histories with a defect, until one of them finds it."""
    if issubclass(defect, World):
        world, parts = defect, {}
    elif issubclass(defect, Client):
        world, parts = World, {"client": defect}
    else:
        world, parts = World, {"rules": defect}
    for seed in range(MOST_SEEDS):
        world(seed, profile, **parts).run()
