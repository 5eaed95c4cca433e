"""Amounts of money: currency units outside, billionths of them in the buckets.

No float is accepted: 0.1 has no exact float, and a sum of a million such prices is off by cents.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import MAX_UNITS

PLACES = 9  # those of billionths
_STEP = Decimal(1).scaleb(-PLACES)
# More digits than any amount has, so that no operation rounds on its own.
_EXACT = Context(prec=60, rounding=ROUND_CEILING)
FORM = 'must be a Decimal, a text such as "12.50" or a whole number of currency units'


def is_money(amount: object) -> bool:
    """Tell whether an amount has the form of money; floats and booleans have not."""
    return type(amount) in (Decimal, str, int)


def rounded_up(amount: object, field: str) -> Decimal:
    """Return an amount with at most nine decimal places; more of them are rounded up."""
    number = _number(amount, field)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -PLACES <= exponent <= 0:
        return number  # as it was given: errors name it
    return number.quantize(_STEP, context=_EXACT)


def exact_billionths(amount: object, field: str) -> int:
    """Return an amount of a limit in billionths; raise if it has more than nine decimal places."""
    number = _number(amount, field)
    billionths = number.scaleb(PLACES, context=_EXACT)
    if billionths != billionths.to_integral_value():
        raise ValidationError(field, str(amount), f"has more than {PLACES} decimal places")
    return int(billionths)


def check_units(amount: int | Decimal, field: str) -> None:
    """Raise if a number of currency units is larger than any budget."""
    if not -MAX_UNITS <= amount <= MAX_UNITS:
        raise ValidationError(field, str(amount), f"must be at most {MAX_UNITS}")


def billionths_of(amount: int | Decimal) -> int:
    """Return a checked amount of a call in billionths."""
    return int(Decimal(amount).scaleb(PLACES, context=_EXACT))


def in_currency(billionths: int) -> Decimal:
    """Return billionths in currency units, with at least two decimal places."""
    number = Decimal(billionths).scaleb(-PLACES, context=_EXACT).normalize(_EXACT)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return number if exponent <= -2 else number.quantize(Decimal("0.01"), context=_EXACT)


def _number(amount: object, field: str) -> Decimal:
    if not is_money(amount):
        raise ValidationError(field, amount, FORM)
    try:
        number = Decimal(amount)  # type: ignore[arg-type]
    except InvalidOperation:
        raise ValidationError(field, amount, FORM) from None
    if not number.is_finite():
        raise ValidationError(field, str(amount), FORM)
    check_units(number, field)
    return number
