"""Amounts as people write them: ``tpm=500 usd=0.25``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import check_amounts
from zae_limiter_ops.views.columns import plain_values

if TYPE_CHECKING:
    from decimal import Decimal

# Thirty digits: far more than any amount, and few enough for int().
_WHOLE_NUMBER = re.compile(r"[0-9](?:_?[0-9]){0,29}")
_MONEY = re.compile(r"[0-9]{1,15}\.[0-9]{1,18}")


def parse_amount(text: str) -> tuple[str, int | str] | None:
    """Return name and amount of ``tpm=500`` or ``usd=0.25``; None for any other text."""
    name, equals, amount = text.partition("=")
    if not name or not equals:
        return None
    if _MONEY.fullmatch(amount):
        return name, amount
    return (name, int(amount)) if _WHOLE_NUMBER.fullmatch(amount) else None


def parse_amounts(text: str) -> dict[str, Any]:
    """Return the amounts of a text such as ``tpm=500 usd=0.25``; an empty one has none."""
    amounts: dict[str, int | str] = {}
    for word in text.replace(",", " ").split():
        parsed = parse_amount(word)
        if parsed is None:
            raise ValidationError(
                "amounts", word, "must have the form NAME=AMOUNT, such as tpm=500 or usd=0.25"
            )
        amounts[parsed[0]] = parsed[1]
    return check_amounts(amounts, "amounts")


def amount_words(amounts: Mapping[str, int | Decimal]) -> list[str]:
    """Return the words that ``parse_amounts`` and the command line read."""
    return [f"{name}={amount}" for name, amount in plain_values(amounts).items()]
