"""Amounts of usage as users see them: whole tokens, and the money of budgets with its currency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from zae_limiter.admission.usage import whole_amounts
from zae_limiter.models.money import in_currency
from zae_limiter.models.usage import money_label
from zae_limiter.naming import CURRENCY


class ShownNames(NamedTuple):
    """The names of counted limits as users see them, and the currencies of budgets among them."""

    by_counted: Mapping[str, str]
    currencies: Mapping[str, str]

    @classmethod
    def of(cls, counted: Iterable[str]) -> ShownNames:
        """Return the plain names; a budget whose name occurs twice is ``usd (USD)``."""
        parts = {name: name.partition(CURRENCY) for name in counted}
        occurrences = Counter(plain for plain, _, _ in parts.values())
        names, currencies = {}, {}
        for name, (plain, _, currency) in parts.items():
            is_only = occurrences[plain] == 1 or not currency
            names[name] = plain if is_only else money_label(plain, currency)
            if currency:
                currencies[names[name]] = currency
        return cls(names, currencies)

    def amounts(self, counted_milli: Mapping[str, int]) -> dict[str, int | Decimal]:
        """Return whole tokens by shown name; amounts of budgets are in currency units."""
        return self.of_whole(whole_amounts(counted_milli))

    def of_whole(self, counted: Mapping[str, int]) -> dict[str, int | Decimal]:
        """Return amounts by shown name that are whole tokens already, as those of rejections."""
        return {
            self.by_counted[name]: in_currency(amount) if CURRENCY in name else amount
            for name, amount in counted.items()
        }
