"""The check of the demo's log: it never blames a correct limiter, and misses no token."""

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter_lab.demo.invariant import fullest_windows
from zae_limiter_lab.demo.log import BucketLimit, GrantLog, LimitLog, LogEntry, Moment

KEY = BucketLimit("user", "gpt-4", "tpm")
LIMIT = Limit.custom("tpm", 10, 1, 1)  # ten at once, one a second
START_MS = 1_700_000_000_000


def at(second, *, done=None):
    """Return a moment given in seconds."""
    began_ms = START_MS + round(second * 1000)
    return Moment(began_ms, began_ms if done is None else START_MS + round(done * 1000))


def entries(*pairs):
    return [LogEntry(tokens, moment) for tokens, moment in pairs]


def violations(grants, debts=(), credits=(), limit=LIMIT):  # noqa: A002 - it is the word
    log = GrantLog()
    log.limits[KEY] = LimitLog(entries(*grants), entries(*debts), entries(*credits))
    return found_violations(log, limit)


def found_violations(log, limit=LIMIT):
    return [window for window in fullest_windows(log, {KEY: limit}) if not window.holds]


def test_the_capacity_is_allowed_at_once_and_no_token_more():
    assert not violations([(6, at(0)), (4, at(0))])
    assert violations([(6, at(0)), (4, at(0)), (1, at(0))])


def test_refilled_tokens_may_be_taken_when_they_are_there():
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


def test_a_refund_may_be_taken_again_once():
    assert not violations([(10, at(0)), (4, at(0.2))], credits=[(4, at(0.1))])
    assert violations([(10, at(0)), (4, at(0.2)), (4, at(0.3))], credits=[(4, at(0.1))])


def test_a_later_refund_is_no_excuse():
    assert violations([(10, at(0)), (4, at(0.2))], credits=[(4, at(0.3))])


def test_a_refund_to_a_full_bucket_is_lost():
    assert violations([(1, at(0)), (14, at(100))], credits=[(4, at(50))])


def test_a_refund_in_flight_favours_the_limiter():
    in_flight = [(4, at(0.1, done=0.5))]
    assert not violations([(10, at(0.2)), (4, at(0.3))], credits=in_flight)
    assert violations([(10, at(0.6)), (4, at(0.6))], credits=in_flight)


def test_a_refund_helps_a_grant_that_was_still_under_way():
    assert not violations([(10, at(0)), (4, at(0.1, done=0.5))], credits=[(4, at(0.3))])
    assert not violations([(10, at(0)), (4, at(0, done=0.5))], credits=[(4, at(0.3))])


def test_a_debt_is_never_blamed_itself():
    assert not violations([(10, at(0))], debts=[(50, at(0.1))])


def test_tokens_of_a_debt_cannot_be_admitted():
    assert violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5))])
    assert not violations([(5, at(0)), (1, at(1))], debts=[(5, at(0.5))])
    assert violations([(1, at(1))], debts=[(11, at(0.5))])


def test_a_debt_in_flight_favours_the_limiter():
    assert not violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5, done=1))])
    assert violations([(5, at(0)), (5, at(1))], debts=[(5, at(0.5, done=0.9))])


def test_an_inexact_stamp_is_taken_at_its_best():
    assert not violations([(10, at(0, done=0.5)), (1, at(0.6, done=1.2))])
    assert violations([(10, at(0, done=0.5)), (1, at(0.6, done=0.9))])
    assert not violations([(6, at(0)), (6, at(0.1, done=10)), (1, at(0.2))])


def test_the_fullest_window_is_reported():
    log = GrantLog()
    log.limits[KEY] = LimitLog(entries((5, at(0)), (3, at(1)), (1, at(60))), [], [])
    (window,) = fullest_windows(log, {KEY: LIMIT})
    assert (window.granted, window.allowed, window.windows) == (8, 11.0, 6)


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
def test_a_right_limiter_is_never_blamed(steps):
    now_ms, log, leases = START_MS, GrantLog(), []
    stamps = [now_ms]
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults([LIMIT])
        limiter = SyncRateLimiter(repository, clock=lambda: stamps[-1])
        for wait_ms, lag_ms, late_ms, tokens, settle in steps:
            now_ms += wait_ms
            stamps.append(now_ms - lag_ms)
            moment = Moment(stamps[-1], now_ms + late_ms)
            if settle is None:
                acquire = limiter.acquire("user", "gpt-4", {"tpm": tokens})
                try:
                    leases.append((acquire, acquire.__enter__()))
                except RateLimitExceeded:
                    continue
                log.add_grant(["user"], "gpt-4", {"tpm": tokens}, moment)
            elif leases:
                acquire, lease = leases.pop(0)
                change = max(settle, -lease.consumed["tpm"])
                lease.adjust(tpm=change)
                acquire.__exit__(None, None, None)
                log.add_settlement(["user"], "gpt-4", {"tpm": change}, moment)
    assert found_violations(log) == []
