"""The check of the demo's log: it never blames a correct limiter, and misses no token."""

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter_lab.demo.invariant import check_invariant, fullest_windows
from zae_limiter_lab.demo.log import BucketLimit, GrantLog, LimitLog, LogEntry, Moment, Stopwatch

KEY = BucketLimit("user", "gpt-4", "tpm")
LIMIT = Limit.custom("tpm", 10, 1, 1)  # ten at once, one a second
START_MS = 1_700_000_000_000


def at(second, *, done=None, last=None):
    """Return a moment given in seconds."""
    first_ms = START_MS + round(second * 1000)
    last_ms = first_ms if last is None else START_MS + round(last * 1000)
    done_ms = last_ms if done is None else START_MS + round(done * 1000)
    return Moment(first_ms, last_ms, done_ms)


def entries(*pairs):
    return [LogEntry(tokens, moment) for tokens, moment in pairs]


def violations(grants, debts=(), credits=(), limit=LIMIT):  # noqa: A002 - it is the word
    log = GrantLog()
    log.limits[KEY] = LimitLog(entries(*grants), entries(*debts), entries(*credits))
    return check_invariant(log, {KEY: limit})


def test_all_of_the_capacity_at_once_is_allowed_and_one_more_is_not():
    assert not violations([(6, at(0)), (4, at(0))])
    assert violations([(6, at(0)), (4, at(0)), (1, at(0))])


def test_what_comes_back_may_be_taken_when_it_is_there_and_not_before():
    assert not violations([(10, at(0)), (1, at(1)), (1, at(2))])
    assert violations([(10, at(0)), (1, at(0.998))])
    assert violations([(10, at(0)), (1, at(1)), (2, at(2))])


def test_less_than_a_thousandth_of_a_token_is_rounding():
    slow = Limit.custom("tpm", 10, 1, 3)
    assert not violations([(10, at(0)), (1, at(3))], limit=slow)
    assert not violations([(10, at(0)), (1, at(2.998))], limit=slow)
    assert violations([(10, at(0)), (1, at(2.997))], limit=slow)


def test_a_window_in_the_middle_counts_as_well():
    grants = [(1, at(0)), (10, at(100)), (3, at(102)), (1, at(200))]
    (found,) = violations(grants)
    assert (found.from_ms, found.to_ms, found.granted) == (at(100)[0], at(102)[0], 13)


def test_idle_time_does_not_add_up_beyond_the_capacity():
    assert violations([(1, at(0)), (11, at(1000))])


def test_what_is_given_back_may_be_taken_again_once():
    assert not violations([(10, at(0)), (4, at(0.2))], credits=[(4, at(0.1))])
    assert violations([(10, at(0)), (4, at(0.2)), (4, at(0.3))], credits=[(4, at(0.1))])


def test_what_is_given_back_later_does_not_excuse():
    assert violations([(10, at(0)), (4, at(0.2))], credits=[(4, at(0.3))])


def test_what_is_given_back_to_a_full_bucket_is_lost():
    assert violations([(1, at(0)), (14, at(100))], credits=[(4, at(50))])


def test_a_refund_in_flight_is_counted_in_favour_of_the_limiter():
    in_flight = [(4, at(0.1, done=0.5))]
    assert not violations([(10, at(0.2)), (4, at(0.3))], credits=in_flight)
    assert violations([(10, at(0.6)), (4, at(0.6))], credits=in_flight)


def test_a_refund_helps_a_grant_that_was_still_under_way():
    assert not violations([(10, at(0)), (4, at(0.1, done=0.5))], credits=[(4, at(0.3))])
    assert not violations([(10, at(0)), (4, at(0, done=0.5))], credits=[(4, at(0.3))])


def test_a_debt_is_never_blamed_itself():
    assert not violations([(10, at(0))], debts=[(50, at(0.1))])


def test_what_a_debt_took_cannot_be_admitted():
    assert violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5))])
    assert not violations([(5, at(0)), (1, at(1))], debts=[(5, at(0.5))])
    assert violations([(1, at(1))], debts=[(11, at(0.5))])


def test_a_debt_in_flight_is_counted_in_favour_of_the_limiter():
    assert not violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5, done=1))])
    assert violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5, done=0.9))])


def test_a_stamp_that_is_not_known_exactly_is_taken_at_its_best():
    assert not violations([(10, at(0, last=0.5)), (1, at(0.6, last=1.2))])
    assert violations([(10, at(0, last=0.5)), (1, at(0.6, last=0.9))])
    assert not violations([(6, at(0)), (6, at(0.1, last=10)), (1, at(0.2))])


def test_it_tells_how_full_the_fullest_window_is_and_how_many_there_are():
    log = GrantLog()
    log.limits[KEY] = LimitLog(entries((5, at(0)), (3, at(1)), (1, at(60))), [], [])
    (window,) = fullest_windows(log, {KEY: LIMIT})
    assert (window.granted, window.allowed, window.windows) == (8, 11.0, 6)


def test_a_stopwatch_knows_the_stamp_of_the_call():
    ticks = iter(range(1000, 2000))
    stopwatch = Stopwatch(lambda: next(ticks))
    stopwatch.start()
    stamp = stopwatch()
    assert stopwatch.stop() == Moment(stamp, stamp, 1002)
    stopwatch.start()
    assert stopwatch.stop() == Moment(1003, 1004, 1004)


# --- against a correct limiter ---------------------------------------------------------------

STEP = st.tuples(
    st.integers(0, 400),  # ms since the step before
    st.integers(0, 300),  # how long before that the stamp was taken
    st.integers(0, 300),  # how long after that the answer came
    st.integers(1, 10),  # tokens
    st.one_of(st.none(), st.integers(-10, 10)),  # settle the oldest lease by that much
)


@settings(max_examples=100)
@given(st.lists(STEP, max_size=60))
def test_a_right_limiter_is_never_blamed_whatever_the_order_of_stamps(steps):
    now_ms, log, leases = START_MS, GrantLog(), []
    stamps = [now_ms]
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults([LIMIT])
        limiter = SyncRateLimiter(repository, clock=lambda: stamps[-1])
        for wait_ms, lag_ms, late_ms, tokens, settle in steps:
            now_ms += wait_ms
            stamps.append(now_ms - lag_ms)
            moment = Moment(stamps[-1], stamps[-1], now_ms + late_ms)
            if settle is None:
                acquire = limiter.acquire("user", "gpt-4", {"tpm": tokens})
                try:
                    leases.append((acquire, acquire.__enter__()))
                except RateLimitExceeded:
                    continue
                log.add_grant(["user"], "gpt-4", {"tpm": tokens}, moment)
            elif leases:
                acquire, lease = leases.pop(0)
                lease.adjust(tpm=settle)
                acquire.__exit__(None, None, None)
                log.add_settlement(["user"], "gpt-4", {"tpm": settle}, moment)
    assert check_invariant(log, {KEY: LIMIT}) == []
