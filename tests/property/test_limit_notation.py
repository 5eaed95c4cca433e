"""Text and limit are two forms of one value."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import limits
from zae_limiter import Limit

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}", fullmatch=True)


@given(names.filter(lambda name: name.lower() != "wcu").flatmap(limits))
def test_a_limit_that_was_written_is_read_back(limit):
    assert Limit.parse(str(limit)) == limit


@given(limits(), limits())
def test_different_limits_are_written_differently(one, other):
    assert (str(one) == str(other)) == (one == other)
