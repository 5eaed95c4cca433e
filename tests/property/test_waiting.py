"""Callers that wait for a bucket are served in order, exactly, and never too many of them.

``DEFECTS`` are fleets and clients that ignore one guard: the histories must find each of them.
``ZAEL_HISTORIES=30000 make test-slow`` runs as many random histories.
"""

import os
from functools import cache

import pytest

from tests.property.waiting_fleet import START_MS, Client, Fleet, Setting
from zae_limiter.admission.reservation import HORIZON_MS, LAPSE_MS, LATE_MS

SHORT = 12
LONG = int(os.environ.get("ZAEL_HISTORIES", "3000"))
CALM = {
    "one client": Setting(clients=1),
    "eight clients": Setting(clients=8),
    "amounts of all sizes": Setting(capacity=50, per_second=20, largest=50, callers=40),
    "a small capacity": Setting(capacity=1, per_second=10),
    "a slow network": Setting(latency_ms=150, clients=6, shortest_wait_ms=5000),
    "a fast limit": Setting(capacity=500, per_second=1000, largest=200, callers=80),
}
TROUBLED = {
    "cancels": Setting(cancels=0.3),
    "large cancels": Setting(cancels=0.5, largest=10, clients=3),
    "stops": Setting(stops=0.5, longest_wait_ms=60_000),
    "crashes": Setting(crashes=0.4),
    "everything": Setting(
        cancels=0.3, stops=0.2, crashes=0.2, largest=10, clients=8, callers=100, spread_ms=20_000
    ),
    "a slow network": Setting(cancels=0.4, latency_ms=400, largest=8, clients=5),
    "pauses": Setting(
        cancels=0.3,
        stops=0.2,
        crashes=0.2,
        largest=10,
        callers=100,
        spread_ms=20_000,
        pauses=((1000, 3000), (3500, 4000), (12_000, 2000)),
    ),
}
PAUSED = {
    "one pause": Setting(pauses=((500, 4000),)),
    "one that is made longer": Setting(pauses=((300, 2000), (1500, 5000)), clients=8),
    "one after the other": Setting(
        pauses=((300, 1000), (1400, 1000), (3000, 1000)), spread_ms=4000, latency_ms=100
    ),
    "one beyond the horizon": Setting(pauses=((0, 90_000),), longest_wait_ms=120_000),
}
IMPATIENT = Setting(latency_ms=100, capacity=5, longest_wait_ms=300, callers=40)
ONE_LARGE = Setting(capacity=50, per_second=10, callers=80, spread_ms=6000, clients=4)


@cache
def histories(setting):
    return [Fleet(seed, setting).run() for seed in range(SHORT)]


def accrued(setting, elapsed_ms):
    return elapsed_ms * setting.per_second  # millitokens


@pytest.mark.parametrize("setting", CALM.values(), ids=CALM)
def test_the_order_of_the_writes_is_the_order_of_service(setting):
    for fleet in histories(setting):
        entered = [each for each in fleet.callers if each.outcome == "entered"]
        in_order = sorted(entered, key=lambda each: each.reservation.place)
        waited = [each.entered_ms for each in in_order if each.entered_ms > each.answered_ms]
        assert waited == sorted(waited)
        for client in fleet.clients:  # and callers of one client are written in order
            numbers = [each.number for each in in_order if each.client is client]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("setting", PAUSED.values(), ids=PAUSED)
def test_callers_wait_for_the_end_of_a_pause_in_order(setting):
    end_ms = START_MS + max(begins_ms + lasts_ms for begins_ms, lasts_ms in setting.pauses)
    waited = 0
    for fleet in histories(setting):
        check_pause(fleet)
        for client in fleet.clients:
            of_client = [each for each in fleet.callers if each.client is client]
            entered = [each for each in of_client if each.outcome == "entered"]
            after = [each for each in entered if 0 < each.turned_away_ms < end_ms]
            assert [each.number for each in sorted(after, key=lambda each: each.entered_ms)] == [
                each.number for each in after
            ]
            waited += len(after)
        for caller in fleet.callers:
            assert caller.outcome is not None
            if caller.deadline_ms >= end_ms + 10_000:  # all others are served by then
                assert caller.outcome == "entered"
            if (
                caller.outcome == "rejected"
                and caller.deadline_ms < START_MS + setting.pauses[0][1]
            ):
                assert caller.decided_ms - caller.at_ms <= 10 * setting.latency_ms
    assert waited > SHORT


@pytest.mark.parametrize("setting", CALM.values(), ids=CALM)
def test_a_caller_goes_on_when_all_tokens_ahead_have_accrued(setting):
    for fleet in histories(setting):
        check_entries(fleet)


def check_entries(fleet):
    """A caller goes on as soon as the tokens of all before it have accrued, and not earlier."""
    setting = fleet.setting
    charged = [each for each in fleet.callers if each.reservation is not None]
    level, at_ms, total = setting.capacity * 1000, START_MS, 0
    for caller in sorted(charged, key=lambda each: each.reservation.place):
        total += caller.amount_milli
        assert total <= setting.capacity * 1000 + accrued(setting, caller.entered_ms - START_MS)
        # The level as a bucket would have it that is charged when the write arrives.
        applied_ms = fleet.applied_ms[caller.reservation.place[0] - 1]
        level = min(setting.capacity * 1000, level + accrued(setting, applied_ms - at_ms))
        level, at_ms = level - caller.amount_milli, applied_ms
        due_ms = at_ms + -(min(0, level) // setting.per_second)
        assert caller.entered_ms <= max(due_ms, caller.answered_ms) + 1
        assert caller.entered_ms >= caller.reservation.due_ms


def check_pause(fleet):
    assert not fleet.admitted_in_pause


@pytest.mark.parametrize("setting", CALM.values(), ids=CALM)
def test_callers_go_on_by_their_deadline_or_are_rejected_at_once(setting):
    for fleet in histories(setting):
        for caller in fleet.callers:
            if caller.outcome == "late":
                assert caller.answered_ms > caller.deadline_ms
            elif caller.outcome == "entered":
                assert caller.entered_ms <= max(caller.deadline_ms, caller.answered_ms)
            else:  # at most some round trips, behind other writes of its client
                assert caller.outcome == "rejected"
                assert caller.decided_ms - caller.at_ms <= 10 * setting.latency_ms


@pytest.mark.parametrize("setting", TROUBLED.values(), ids=TROUBLED)
def test_no_window_has_more_than_the_published_bound(setting):
    for fleet in histories(setting):
        check_bound(fleet)


@pytest.mark.slow
@pytest.mark.parametrize("setting", TROUBLED.values(), ids=TROUBLED)
def test_many_histories_keep_the_published_bound(setting):
    for seed in range(SHORT, SHORT + LONG // len(TROUBLED)):
        check_bound(Fleet(seed, setting).run())


def check_bound(fleet):
    """Entries in a window are at most capacity + accrued + what was given back meanwhile.

    The moment of an entry is the later one of its stamp and its due. The answer may come a little
    later, and a caller of a process that was stopped goes on up to a second later.
    """
    setting, capacity = fleet.setting, fleet.setting.capacity * 1000
    entered = [each for each in fleet.callers if each.outcome == "entered"]
    for caller in entered:
        late_ms = caller.entered_ms - max(caller.due_ms, caller.answered_ms)
        assert late_ms <= (LAPSE_MS if setting.stops else 0)
    moments = sorted((max(each.due_ms, each.stamp_ms), each.amount_milli) for each in entered)
    for first, (from_ms, _) in enumerate(moments):
        amount = 0
        for moment_ms, each in moments[first:]:
            amount += each
            given = sum(
                given
                for given_ms, given in fleet.given_back
                if from_ms - HORIZON_MS <= given_ms <= moment_ms
            )
            assert amount <= capacity + accrued(setting, moment_ms - from_ms + 1) + given


@pytest.mark.parametrize("setting", TROUBLED.values(), ids=TROUBLED)
def test_every_caller_of_a_live_client_gets_an_answer(setting):
    for fleet in histories(setting):
        for caller in fleet.callers:
            assert caller.outcome is not None or not caller.client.is_alive


def test_a_caller_that_is_answered_after_its_deadline_gives_back():
    late = 0
    for fleet in histories(IMPATIENT):
        check_deadlines(fleet)
        late += sum(caller.outcome == "late" for caller in fleet.callers)
    assert late


def check_deadlines(fleet):
    for caller in fleet.callers:
        if caller.outcome == "entered" and caller.due_ms > caller.stamp_ms:
            assert caller.entered_ms <= caller.deadline_ms + LATE_MS


@pytest.mark.parametrize("setting", TROUBLED.values(), ids=TROUBLED)
def test_no_caller_is_due_before_the_tokens_of_all_before_it(setting):
    for fleet in histories(setting):
        check_tokens_ahead(fleet)


def check_tokens_ahead(fleet):
    """Count the charges ahead of a caller that were not given back when it goes on."""
    setting = fleet.setting
    charged = [each for each in fleet.callers if each.reservation is not None and not each.lapses]
    for caller in charged:
        if caller.outcome != "entered":
            continue
        ahead = sum(
            each.amount_milli
            for each in charged
            if each.reservation.place <= caller.reservation.place
            and each.outcome in ("entered", None)
        )
        accrued_by_then = accrued(setting, caller.entered_ms - START_MS)
        assert ahead <= setting.capacity * 1000 + accrued_by_then


def test_small_requests_do_not_starve_a_large_one():
    for seed in range(SHORT):
        check_large(with_a_large_caller(Fleet(seed, ONE_LARGE)).run())


def with_a_large_caller(fleet):
    large = fleet.callers[30]
    large.amount_milli, large.deadline_ms = 50_000, large.at_ms + 30_000
    return fleet


def check_large(fleet):
    large = fleet.callers[30]
    assert large.outcome == "entered"
    behind = [
        each.entered_ms
        for each in fleet.callers
        if each.outcome == "entered" and each.reservation.place > large.reservation.place
    ]
    assert not behind or min(behind) >= large.entered_ms


def test_one_write_serves_more_than_one_caller():
    for fleet in histories(Setting(clients=8, callers=100, longest_wait_ms=59_000)):
        admitted = sum(each.outcome == "entered" for each in fleet.callers)
        assert fleet.writes + fleet.refused <= 1.3 * admitted


def test_tokens_that_are_given_back_let_others_go_on_earlier():
    setting = Setting(capacity=10, per_second=1, largest=10, callers=12, spread_ms=500, clients=2)
    gained = 0
    for seed in range(SHORT):
        with_reads = Fleet(seed, setting._replace(cancels=0.4, longest_wait_ms=60_000)).run()
        for caller in with_reads.callers:
            if caller.outcome == "entered":
                assert caller.reservation is not None
                gained += caller.entered_ms < caller.reservation.due_ms
    assert gained > SHORT


# --- planted defects


class JudgedAtTheStamp(Fleet):
    def until_ms(self, caller):
        return self.now_ms


class ForgetsPauses(Fleet):
    def knows_the_pause(self, sent):
        return True


class LetsEverythingThrough(Fleet):
    def lets_through(self, move):
        return True


class CountsCreditsTwice(Client):
    def credited(self, withdrawn, number):
        super().credited(withdrawn, number)
        super().credited(withdrawn, number)


class ForgetsCreditsOnTheirWay(Client):
    """Takes each caller for one that joined before all credits."""

    def after_credit(self):
        return 0


class DelayedByChargesBehind(Client):
    def placed(self, reservation):
        image = reservation.image
        return reservation._replace(limits={key: image.limits[key] for key in reservation.limits})


class MovesDuesIntoThePast(Client):
    def due_of(self, sleeper):
        return sleeper.reservation.due_ms


class NeverLapses(Client):
    def on_waking(self, after_due_ms, after_deadline_ms):
        return super().on_waking(0, after_deadline_ms)


class NeverLate(Client):
    def on_waking(self, after_due_ms, after_deadline_ms):
        return super().on_waking(after_due_ms, 0)


# The fleet or client, the setting, and the check that finds the defect.
DEFECTS = [
    (ForgetsPauses, PAUSED["one that is made longer"], check_pause),
    (LetsEverythingThrough, CALM["eight clients"], check_entries),
    (CountsCreditsTwice, TROUBLED["a slow network"], check_tokens_ahead),
    (ForgetsCreditsOnTheirWay, TROUBLED["large cancels"], check_tokens_ahead),
    (DelayedByChargesBehind, CALM["a slow network"], check_entries),
    (MovesDuesIntoThePast, TROUBLED["cancels"], check_bound),
    (NeverLapses, TROUBLED["stops"], check_bound),
    (NeverLate, IMPATIENT, check_deadlines),
]


@pytest.mark.parametrize(
    ("defect", "setting", "check"), DEFECTS, ids=[defect.__name__ for defect, _, _ in DEFECTS]
)
def test_a_planted_defect_is_found(defect, setting, check):
    with pytest.raises(AssertionError):
        check_all(fleets_with(defect, setting), check)


def test_callers_that_are_judged_at_the_stamp_starve():
    fleets = fleets_with(JudgedAtTheStamp, ONE_LARGE)
    with pytest.raises(AssertionError):
        check_all(map(with_a_large_caller, fleets), check_large)


def fleets_with(defect, setting):
    for seed in range(SHORT):
        if issubclass(defect, Fleet):
            yield defect(seed, setting)
        else:
            yield Fleet(seed, setting, client=defect)


def check_all(fleets, check):
    for fleet in fleets:
        check(fleet.run())
