"""Pauses between attempts."""

from zae_limiter.clock.backoff import Backoff


def test_pauses_are_random_below_a_bound_that_doubles():
    columns = zip(*([backoff.next_s() for _ in range(6)] for backoff in fresh(300)), strict=True)
    for pauses, bound in zip(columns, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
        assert 0.9 * bound < max(pauses) <= bound
        assert min(pauses) < 0.1 * bound
        assert len(set(pauses)) == len(pauses)


def fresh(count):
    return [Backoff(0.1, 1.0) for _ in range(count)]
