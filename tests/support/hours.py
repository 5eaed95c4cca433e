"""Hours of usage, in whole tokens."""

from zae_limiter.admission.tally import NO_TALLY
from zae_limiter.admission.usage import HourUsage, milli_of


def hour_of(hour, tokens, admitted=1, through_children=None, tally=NO_TALLY):
    """Return an hour in which so many tokens of each limit were used."""
    return HourUsage(hour, milli_of(tokens), admitted, milli_of(through_children or {}), tally)
