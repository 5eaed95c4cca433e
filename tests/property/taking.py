"""Taking an amount from a single limit."""

from zae_limiter.admission.fit import fits
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import RateLedger


def fits_limit(state, amount_milli, now_ms, until_ms=None):
    """Tell whether a bucket with this one limit holds an amount."""
    return fits(BucketImage({"x": state}, 1, None, 0), {"x": amount_milli}, now_ms, until_ms)


def charged_state(state, amount_milli, now_ms):
    """Return the limit after an amount was taken from it, whether or not it holds the amount."""
    ledger = RateLedger("x", state, now_ms)
    ledger.charged = amount_milli
    return ledger.after()


def take(state, amount_milli, now_ms, until_ms=None):
    """Return the limit after a charge; None if the charge does not fit."""
    if not fits_limit(state, amount_milli, now_ms, until_ms):
        return None
    return charged_state(state, amount_milli, now_ms)
