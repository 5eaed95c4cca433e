"""What the properties are tried on: slow and fast limits, moments before and after the epoch."""

from hypothesis import strategies as st

from zae_limiter import Limit
from zae_limiter.admission.image import BucketImage, LimitState, Rate, full_balance
from zae_limiter.admission.tally import NO_TALLY, Refusals, Tally
from zae_limiter.bucket import EPOCH_MS
from zae_limiter.models.limit import MAX_PERIOD_SECONDS, MAX_TOKENS
from zae_limiter.models.timestamps import MILLI
from zae_limiter.refusal import LimitedBy

CENTURY_MS = 100 * 366 * 86_400_000
HOUR_MS = 3_600_000


def tokens(most=MAX_TOKENS):
    """Small ones often, and every order of magnitude."""
    powers = st.integers(0, 15).map(lambda power: 10**power).filter(lambda each: each <= most)
    return st.integers(1, min(12, most)) | powers | st.integers(1, most)


def periods():
    usual = st.sampled_from([1, 2, 3, 7, 60, 3600, 86_400, 30 * 86_400])
    return usual | st.integers(1, MAX_PERIOD_SECONDS)


def limits(name="rpm"):
    return st.builds(Limit, st.just(name), tokens(), tokens(), periods())


def rates():
    return limits().map(Rate.of)


def moments():
    """Around the epoch, around today, and two centuries either way."""
    return st.one_of(
        st.integers(EPOCH_MS - 5000, EPOCH_MS + 5000),
        st.integers(1_700_000_000_000, 1_900_000_000_000),
        st.integers(EPOCH_MS - 2 * CENTURY_MS, EPOCH_MS + 2 * CENTURY_MS),
    )


def steps():
    """Milliseconds to hours, now and then a year."""
    return st.one_of(
        st.integers(0, 3),
        st.integers(0, 5000),
        st.integers(0, 2 * HOUR_MS),
        st.integers(0, CENTURY_MS // 100),
    )


def levels(rate):
    """In debt, empty, partly filled, full, and long overfull."""
    capacity = rate.capacity_milli
    return st.one_of(
        st.integers(-3 * capacity, 3 * capacity),
        st.sampled_from([-1, 0, 1, capacity - 1, capacity, capacity + 1]),
    )


@st.composite
def states(draw, now_ms, rate=None):
    """One limit at a moment."""
    rate = draw(rates()) if rate is None else rate
    over_full = draw(levels(rate)) - rate.capacity_milli
    consumed = draw(st.integers(-(10**20), 10**20)) * MILLI
    counted = draw(st.integers(-(10**20), 10**20)) * MILLI
    return LimitState(full_balance(rate, now_ms) + over_full, rate, consumed, counted)


def tallies(names, most=10**6):
    """How acquires ended, at least one of them in a rejection."""
    counts = st.integers(0, most)
    asked = st.dictionaries(names, st.integers(1, 10**9))
    parts = counts, counts, asked, counts, counts, counts, st.none() | refusals(names)
    return st.builds(Tally, st.integers(1, most), *parts)


def refusals(names):
    """What refused acquires, by names that are empty if they are those of the bucket itself."""
    refused = st.builds(
        LimitedBy, st.sampled_from(["", "team"]), st.sampled_from(["", "api"]), names
    )
    return st.builds(Refusals, refused, st.integers(0, 2**32), refused, st.integers(0, 99))


@st.composite
def images(draw, now_ms, names=("rpm", "tpm", "rpd")):
    """A bucket with one to three limits."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return BucketImage(
        {name: draw(states(now_ms)) for name in chosen},
        draw(st.integers(0, 5)),
        draw(st.none() | moments()),
        now_ms // HOUR_MS,
        draw(st.integers(0, 10**6)),
        0,
        draw(st.integers(0, 10**6)),
        draw(st.none() | st.dictionaries(st.sampled_from(names), st.integers(-(10**20), 10**20))),
        draw(st.just(NO_TALLY) | tallies(st.sampled_from(names))),
    )
