"""Taking an amount from a single limit."""

from zae_limiter.admission.charge import taken
from zae_limiter.admission.fit import fits
from zae_limiter.admission.image import BucketImage


def fits_limit(state, amount_milli, now_ms, until_ms=None):
    """Tell whether a bucket with this one limit holds an amount."""
    return fits(BucketImage({"x": state}, 1, None, 0), {"x": amount_milli}, now_ms, until_ms)


def take(state, amount_milli, now_ms, until_ms=None):
    """Return the limit after a charge; None if the charge does not fit."""
    if not fits_limit(state, amount_milli, now_ms, until_ms):
        return None
    return taken(state, amount_milli, now_ms)
