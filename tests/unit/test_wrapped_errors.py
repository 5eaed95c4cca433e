"""The rejection inside of the errors that frameworks wrap around it."""

from zae_limiter import RateLimitExceeded
from zae_limiter.web.answers import find_error

REJECTED = RateLimitExceeded([])


def caused(error, cause):
    error.__cause__ = cause
    return error


def test_a_rejection_is_found_however_it_is_wrapped():
    assert find_error(REJECTED) is REJECTED
    assert find_error(caused(ValueError(), caused(KeyError(), REJECTED))) is REJECTED
    assert find_error(ExceptionGroup("", [ValueError(), REJECTED])) is REJECTED
    assert find_error(caused(ValueError(), ExceptionGroup("", [REJECTED]))) is REJECTED


def test_an_error_that_is_its_own_cause_is_read_once():
    error = ValueError()
    assert find_error(caused(error, error)) is None
    other = caused(KeyError(), error)
    error.__cause__ = other
    assert find_error(error) is None
    group = ExceptionGroup("", [error, REJECTED])
    other.__cause__ = group
    assert find_error(error) is REJECTED
