"""Directed histories of quotas, for guards that random histories seldom need, with exact figures.

Each history is played with the rules, where it must end well, and with a variant that lacks a
guard, where the ledger or the figures must show it.
"""

import itertools
from dataclasses import replace
from random import Random

import pytest

from tests.support.quotas import defects
from tests.support.quotas.admin import Rules
from tests.support.quotas.ledger import Ledger, Wrong
from tests.support.quotas.rules import SPAN, Ask, Config, End, Quota, Renewal, window_of
from tests.support.quotas.table import Key, Table
from tests.support.quotas.world import START_MS
from zae_limiter.models.calendar import Calendar

MINUTE = Calendar("minute")
T = START_MS  # the edge of a window of a minute
KEY = Key("api", 0)


class Bench:
    """One bucket, whose writes are made by hand: each may be planned on an item of earlier."""

    def __init__(self, rules=Rules, **quota):
        quota = {"calendar": MINUTE, "hold_ttl": 10, "thresholds": (), **quota}
        self.config = Config(1, {"usd": Quota("usd", quota.pop("amount", 1000), 1, **quota)})
        self.table, self.rules = Table(), rules()
        self.ledger = Ledger(self.table, skew_ms=10**9)
        self.ledger.know(self.config)
        self.calls = itertools.count(1)

    @property
    def item(self):
        return self.table.item(KEY)

    @property
    def level(self):
        balance = self.item["t_usd"]
        return balance + window_of(balance) * SPAN

    @property
    def usage(self):
        return self.item["c_usd"]

    def apply(self, writes, now_ms=T):
        applied = self.table.apply(writes)
        if applied:
            self.ledger.follow(applied, now_ms)
        return bool(applied)

    def plan(self, t_ms, asks=(), ends=(), renewals=(), item=None):
        item = self.item if item is None else item
        return self.rules.plan(KEY, item, self.config, t_ms, list(asks), list(ends), list(renewals))

    def charge(self, amount, t_ms, *, shadow=False):
        """Charge the bucket as it is; return the hold, or None if it is rejected."""
        ask = Ask(next(self.calls), {"usd": amount}, shadow)
        plan = self.plan(t_ms, [ask])
        if plan.rejected:
            return None
        assert self.apply(plan.writes, t_ms)
        return (ask.call, *plan.holds[ask.call])

    def settle(self, held, cost, t_ms):
        call, hold = held
        assert self.apply(self.plan(t_ms, ends=[End(call, [(hold, cost)])]).writes, t_ms)

    def top_up(self, amount, t_ms):
        write = self.rules.top_up(KEY, self.item, self.config, "usd", amount, t_ms)
        assert self.apply([write], t_ms)

    def plan_mark(self):
        return self.rules.mark(KEY, self.item, self.config.limits["usd"])

    def plan_reset(self, t_ms):
        settled = self.ledger.settled("api", self.item)
        return self.rules.reset(KEY, self.item, self.config, settled, t_ms)

    def reset(self, t_ms):
        assert self.apply([self.plan_reset(t_ms)], t_ms)


# --- the histories: each takes the rules, and returns the figures that are wrong with a variant


def first_use_of_two_clients(rules):
    """Two clients begin a window of first use 7 ms apart; each has seen no window."""
    bench = Bench(rules, calendar=None, length_ms=30_000)
    seen = bench.table.items[KEY] = {**bench.rules.full(bench.config, T), "wc": 1}
    plans = [bench.plan(t, [Ask(t, {"usd": 600})], item=seen) for t in (T, T + 7)]
    return [bench.apply(plan.writes, T + 7) for plan in plans]


def settled_after_a_sweep(rules):
    """The hold of a call is swept in its window, and settled in the next one."""
    bench = Bench(rules)
    late = bench.charge(30, T)
    bench.charge(1, T + 20_000)  # sweeps the hold
    bench.charge(1, T + 60_000)
    bench.settle(late, 22, T + 61_000)
    return bench.usage - 1  # the charge of the second window


def reset_without_ttl(rules):
    """A reset between a charge whose hold never expires, and its settlement."""
    bench = Bench(rules, amount=100, hold_ttl=None)
    bench.ledger.check = lambda bucket, by: None  # the level is looked at in the end
    held = bench.charge(50, T)
    bench.reset(T + 1000)
    bench.settle(held, 0, T + 2000)
    return bench.level


def reset_over_a_hold(rules):
    """A reset while 800 of 1,000 are held, and a refund of them."""
    bench = Bench(rules)
    held = bench.charge(800, T)
    reset = bench.plan_reset(T + 1000)
    other = bench.charge(100, T + 1500)
    bench.apply([reset], T + 2000)
    bench.settle(held, 0, T + 3000)
    bench.settle(other, 100, T + 3000)
    return bench.level


def topped_up_during_a_reset(rules):
    """A top-up comes between the read and the write of a reset."""
    bench = Bench(rules)
    bench.charge(100, T)
    reset = bench.plan_reset(T + 1000)
    bench.top_up(500, T + 1500)
    return bench.apply([reset], T + 2000)


def reset_by_two(rules):
    """Two resets were planned on the same item: the second finds the costs forgiven."""
    bench = Bench(rules)
    bench.settle(bench.charge(300, T), 300, T + 1)
    resets = [bench.plan_reset(T + 1000) for _ in range(2)]
    return [bench.apply([reset], T + 2000) for reset in resets]


def settled_over_an_edge(rules):
    """The hold of a call has expired; another client begins the next window meanwhile."""
    bench = Bench(rules)
    call, hold = bench.charge(300, T)
    bench.charge(1, T + 40_000)
    late = bench.plan(T + 59_000, ends=[End(call, [(hold, 300)])])
    bench.charge(1, T + 60_000)
    return bench.apply(late.writes, T + 60_001)


def topped_up_before_the_first_charge(rules):
    bench = Bench(rules)
    bench.charge(1, T)
    bench.top_up(500, T + 60_000)
    return bench.charge(1500, T + 61_000) is not None


def brought_back_by_a_retry(rules):
    """One wrong clock moves the balance ahead; others have spent their window before."""
    bench = Bench(rules)
    bench.settle(bench.charge(1000, T), 1000, T + 1)
    bench.charge(1, T + 300_000)
    return bench.charge(1000, T + 2000) is not None and bench.level


def shadow_before_charge(rules):
    """A group of a shadow call and a call: the debt of the former is taken first."""
    bench = Bench(rules)
    bench.charge(100, T)
    asks = [Ask(8, {"usd": 900}), Ask(9, {"usd": 900}, shadow=True)]
    plan = bench.plan(T + 1, asks)
    bench.apply(plan.writes)
    return [ask.call for ask in plan.admitted]


def rejected_behind_the_window(rules):
    """A client whose clock is behind is rejected in the window that another one has begun."""
    bench = Bench(rules)
    bench.settle(bench.charge(1000, T + 60_000), 1000, T + 60_001)
    [(_, retry_at)] = bench.plan(T + 59_000, [Ask(9, {"usd": 1000})]).rejected
    return retry_at


def joined_by_a_client_behind(rules):
    bench = Bench(rules)
    bench.charge(1, T + 60_000)
    return bench.charge(1, T + 59_000) is not None


def forgotten_at_the_edge(rules):
    """An item is deleted when its TTL says so; a clock is 5 s behind."""
    bench = Bench(rules)
    bench.settle(bench.charge(1000, T), 1000, T + 1)
    now_s = T // 1000 + 61
    if bench.item["ttl"] < now_s:
        del bench.table.items[KEY]
    return bench.charge(1000, now_s * 1000 - 5000) is not None


def renewed_before_it_is_brought_back(rules):
    """A renewal moves a hold between the read and the write of a reset of a balance far ahead."""
    bench = Bench(rules)
    call, hold = bench.charge(300, T + 600_000)
    reset = bench.plan_reset(T)
    renewal = bench.plan(T + 606_000, renewals=[Renewal(call, hold)])
    assert bench.apply(renewal.writes)
    return bench.apply([reset])


def marked_after_a_reset(rules):
    """A threshold that an old image shows is not reached any more after a reset."""
    bench = Bench(rules, thresholds=(50,))
    bench.settle(bench.charge(600, T), 600, T + 1)
    mark = bench.plan_mark()
    bench.reset(T + 1000)
    return bench.apply([mark], T + 1100)


def marked_by_two_clients(rules):
    """Two clients have seen the same answer."""
    bench = Bench(rules, thresholds=(50,))
    bench.charge(600, T)
    marks = [bench.plan_mark() for _ in range(2)]
    return [bench.apply([mark]) for mark in marks]


def marked_after_a_top_up(rules):
    """A top-up comes between the answer that shows a threshold and its mark."""
    bench = Bench(rules, thresholds=(50,))
    bench.charge(600, T)
    mark = bench.plan_mark()
    bench.top_up(200, T + 1000)
    return bench.apply([mark])


def marked_again_after_a_top_up(rules):
    """A top-up undoes the higher of two thresholds, which is then reached again."""
    bench = Bench(rules, thresholds=(50, 80))
    bench.charge(900, T)
    for _ in range(2):
        bench.apply([bench.plan_mark()])
    bench.top_up(300, T + 1000)
    before = bench.plan_mark()
    bench.charge(200, T + 2000)
    return before is None and bench.plan_mark() is not None


def marked_in_the_next_window(rules):
    """The client that has turned the window marks; an answer of the window before comes late."""
    bench = Bench(rules, thresholds=(50,))
    bench.charge(600, T)
    late = bench.plan_mark()
    bench.charge(600, T + 60_000)
    return [bench.apply([mark]) for mark in (bench.plan_mark(), late)]


def marked_after_a_crash(rules):
    """The client dies between its charge and its mark; the answer of another call shows it."""
    bench = Bench(rules, thresholds=(50, 80))
    bench.charge(500, T)
    bench.charge(1, T + 1000)
    return bench.apply([bench.plan_mark()]) and bench.plan_mark() is None


def settled_in_the_group_of_a_turn(rules):
    """A turn settles a call of its own window, which a reset has ended before."""
    bench = Bench(rules)
    held = bench.charge(300, T + 600_000)
    bench.reset(T)
    ask = Ask(9, {"usd": 800})
    call, hold = held
    plan = bench.plan(T + 600_000, [ask], [End(call, [(hold, 300)])])
    bench.apply(plan.writes)
    return bool(plan.rejected)


class IgnoresDebtsOfTurns(Rules):
    """A turn does not count the settlements of its own window."""

    def _admit(self, plan, parts, asks, costs):
        super()._admit(plan, parts, asks, {name: [] for name in costs} | {"usd": []})


class MarksInAnyWindow(defects.MarksTwice):
    """A mark looks neither at the window of the balance nor at a mark that is there."""

    def mark_conditions(self, quota, window, position):
        return []


# The history, its figure by the rules, and a variant with its figure; None: the ledger finds it.
HISTORIES = {
    "first use": (
        first_use_of_two_clients,
        [True, False],
        defects.TurnsFirstUseByNumber,
        None,
    ),
    "late settlement": (settled_after_a_sweep, 22, defects.SubtractsSweptHolds, None),
    "reset without TTL": (reset_without_ttl, 100, defects.HoldsNothingWithoutTtl, 150),
    "reset by SET": (reset_over_a_hold, 900, defects.ResetsBySetting, None),
    "reset over a top-up": (topped_up_during_a_reset, False, defects.ResetsOverTopUps, None),
    "two resets": (reset_by_two, [True, False], defects.ResetsTwice, None),
    "settlement": (settled_over_an_edge, False, defects.UnboundSettlements, None),
    "top-up by ADD": (topped_up_before_the_first_charge, True, defects.TopsUpByAdding, None),
    "moved back": (brought_back_by_a_retry, False, defects.MovesBack, None),
    "shadow": (shadow_before_charge, [9], defects.ChargesBeforeShadows, None),
    "retry at": (rejected_behind_the_window, T + 120_000, defects.RetriesAtItsOwnEdge, T + 60_000),
    "joined": (joined_by_a_client_behind, True, defects.JoinsNoLaterWindow, False),
    "TTL": (forgotten_at_the_edge, False, defects.ForgetsAtTheEdge, None),
    "brought back": (
        renewed_before_it_is_brought_back,
        False,
        defects.BringsBackMovedHolds,
        None,
    ),
    "mark": (marked_after_a_reset, False, defects.MarksOnOldImages, None),
    "two marks": (marked_by_two_clients, [True, False], defects.MarksTwice, None),
    "mark and top-up": (marked_after_a_top_up, False, defects.MarksOnOldImages, None),
    "mark again": (marked_again_after_a_top_up, True, defects.KeepsMarks, False),
    "mark of a window": (
        marked_in_the_next_window,
        [True, False],
        MarksInAnyWindow,
        None,
    ),
    "turn of a group": (settled_in_the_group_of_a_turn, True, IgnoresDebtsOfTurns, None),
}


def test_a_threshold_that_a_dead_client_has_reached_is_marked_by_the_next():
    assert marked_after_a_crash(Rules)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_rules_keep_the_figures(name):
    history, figure, _, _ = HISTORIES[name]
    assert history(Rules) == figure


@pytest.mark.parametrize("name", HISTORIES)
def test_a_variant_without_the_guard_is_found(name):
    history, _, variant, figure = HISTORIES[name]
    if figure is None:
        with pytest.raises(Wrong):
            history(variant)
    else:
        assert history(variant) == figure


# --- reservations over an edge


def granted_after_an_edge(rules, *, reserves):
    """Return the tokens granted in a window of 600, for which a caller of 400 has waited.

    ``reserves``: its charge is written before the edge as a debt, as a rate allows it, and the
    caller goes on at the edge. Otherwise it asks at the edge.
    """
    bench = Bench(rules, amount=600)
    bench.settle(bench.charge(600, T), 600, T + 1)
    granted = []
    if reserves:
        granted += [400] * (bench.charge(400, T + 59_000, shadow=True) is not None)
        assert bench.level == -400
    else:
        assert bench.charge(400, T + 59_000) is None
        granted += [400] * (bench.charge(400, T + 60_000) is not None)
    granted += [600] * (bench.charge(600, T + 60_001) is not None)
    return sum(granted)


def test_callers_reserve_nothing_over_an_edge():
    assert granted_after_an_edge(Rules, reserves=False) == 400


def test_a_reservation_over_an_edge_is_granted_twice():
    """The turn of the next window knows nothing of a debt of the window before."""
    assert granted_after_an_edge(Rules, reserves=True) == 1000


class Fleet:
    """Processes with callers that wait for an edge, on one bucket."""

    def __init__(self, seed, processes, callers, amount):
        self.random, self.bench = Random(seed), Bench(amount=amount)
        self.bench.charge(amount, T)
        self.processes, self.callers = processes, callers

    def run(self, *, together):
        """Return the admitted callers, and the writes that they took.

        ``together``: the head of a process asks for all of its callers.
        """
        before = self.bench.table.writes
        moments = [
            (T + 60_000 + self.random.randint(0, 1000), process)
            for process in range(self.processes)
            for _ in range(1 if together else self.callers)
        ]
        admitted = 0
        for t_ms, process in sorted(moments):
            count = self.callers if together else 1
            asks = [Ask(process * self.callers + each, {"usd": 1}) for each in range(count)]
            plan = self.bench.plan(t_ms, asks)
            if plan.writes:
                assert self.bench.apply(plan.writes, t_ms)
            admitted += len(plan.admitted)
        return admitted, self.bench.table.writes - before


@pytest.mark.parametrize("amount", [150, 2000])
def test_exactly_the_amount_is_admitted_after_an_edge(amount):
    admitted, writes = Fleet(1, processes=1000, callers=2, amount=amount).run(together=True)
    assert admitted == amount
    assert writes <= 1000
    alone, more_writes = Fleet(1, processes=1000, callers=2, amount=amount).run(together=False)
    assert alone == amount
    assert more_writes == amount  # one for each admitted caller


# --- one acquire over several resources

BUCKETS = "abc"


class Caller:
    """A caller that needs one token of each bucket, and asks again until it is admitted."""

    def __init__(self, tokens):
        self.tokens, self.held, self.writes = tokens, [], 0
        self.refused = self.is_admitted = False

    def charge(self, bucket):
        self.writes += 1
        if self.tokens[bucket]:
            self.tokens[bucket] -= 1
            self.held.append(bucket)
        else:
            self.refused = True

    def end_attempt(self):
        """Refund what was charged if a bucket has refused; otherwise keep it."""
        self.is_admitted = not self.refused
        if self.refused:
            for bucket in self.held:
                self.tokens[bucket] += 1
                self.writes += 1
            self.held, self.refused = [], False


class InOrder(Caller):
    """The next bucket is charged when the one before it has admitted; a refusal ends that."""

    def steps(self, chance):
        for bucket in BUCKETS:
            if not self.refused:
                self.charge(bucket)
                yield
        self.end_attempt()


class SideBySide(Caller):
    """All charges are under way at once, and arrive in any order; the answers come after them."""

    def steps(self, chance):
        for bucket in chance.sample(BUCKETS, len(BUCKETS)):
            self.charge(bucket)
            yield
        self.end_attempt()


def first_attempts(kind, chance):
    """Let two callers ask once for the only token of each bucket; return the admitted ones."""
    tokens = dict.fromkeys(BUCKETS, 1)
    callers = [kind(tokens) for _ in range(2)]
    attempts = [caller.steps(chance) for caller in callers]
    while attempts:
        attempt = chance.choice(attempts)
        if next(attempt, "over") == "over":
            attempts.remove(attempt)
    return sum(caller.is_admitted for caller in callers)


def writes_per_call(kind, chance, callers=6, tokens=2):
    """Let callers ask until all are admitted; tokens come back some steps after an admission."""
    free = dict.fromkeys(BUCKETS, tokens)
    waiting = [(caller, caller.steps(chance)) for caller in (kind(free) for _ in range(callers))]
    writes, running, step = 0, [], 0
    while waiting:
        step += 1
        if running and running[0] <= step:
            running.pop(0)
            for bucket in BUCKETS:
                free[bucket] += 1
        place = chance.randrange(len(waiting))
        caller, attempt = waiting[place]
        if next(attempt, "over") != "over":
            continue
        if caller.is_admitted:
            writes += caller.writes
            running.append(step + 40)
            del waiting[place]
        else:
            waiting[place] = caller, caller.steps(chance)
    return writes / callers


def test_a_caller_is_always_admitted_if_buckets_are_charged_in_order():
    chance = Random(1)
    assert {first_attempts(InOrder, chance) for _ in range(1000)} == {1}


def test_side_by_side_often_no_caller_is_admitted():
    chance = Random(1)
    outcomes = [first_attempts(SideBySide, chance) for _ in range(1000)]
    assert outcomes.count(0) > 300


def test_charges_side_by_side_take_more_writes_if_tokens_are_scarce():
    in_order, side_by_side = (
        sum(writes_per_call(kind, Random(seed)) for seed in range(200)) / 200
        for kind in (InOrder, SideBySide)
    )
    assert side_by_side > 1.3 * in_order


# --- counted edges


def counted_number(calendar, t_ms, first_ms):
    """Return the number of the window by counting the edges since a moment."""
    first = calendar.number(first_ms)
    edges = {calendar.edge_ms(k) for k in range(first, calendar.number(t_ms) + 1)}
    return first + len(edges) - 1


def test_numbers_do_not_depend_on_the_edges_between():
    """Apia left out 30 December 2011: two edges coincide, and one who counts them is behind."""
    calendar = Calendar("day", zone="Pacific/Apia")
    before, after = 1_325_000_000_000, 1_325_500_000_000  # 27 December, 2 January
    assert counted_number(calendar, before, before - 10**9) == calendar.number(before)
    assert counted_number(calendar, after, before) == calendar.number(after) - 1
    later = after + 10 * 365 * 86_400_000
    assert counted_number(calendar, later, before) == calendar.number(later) - 1


class CountedEdges:
    """A calendar whose windows are numbered by counting edges since a moment.

    The host began there with the number of the date, as a host does that keeps its count.
    """

    def __init__(self, calendar, first_ms):
        self.calendar, self.first_ms = calendar, first_ms

    def number(self, t_ms):
        return counted_number(self.calendar, t_ms, self.first_ms)

    def edge_ms(self, k):
        return self.calendar.edge_ms(k)


def granted_on_the_same_day(calendar_of):
    """Two hosts, begun before and after the day that Apia left out, spend the same day.

    ``calendar_of`` returns the calendar of a host, by the moment at which the host began.
    """
    before, after = 1_325_000_000_000, 1_325_500_000_000
    bench, granted = Bench(), 0
    for began_ms in (before, after):
        limits = {
            name: replace(quota, calendar=calendar_of(began_ms))
            for name, quota in bench.config.limits.items()
        }
        bench.config = Config(1, limits)
        if held := bench.charge(1000, after + 3_600_000):
            bench.settle(held, 1000, after + 3_600_000)
            granted += 1000
    return granted


def test_hosts_that_number_by_the_date_share_a_window():
    apia = Calendar("day", zone="Pacific/Apia")
    assert granted_on_the_same_day(lambda began_ms: apia) == 1000


def test_hosts_that_count_edges_grant_a_day_twice():
    apia = Calendar("day", zone="Pacific/Apia")
    assert granted_on_the_same_day(lambda began_ms: CountedEdges(apia, began_ms)) == 2000
