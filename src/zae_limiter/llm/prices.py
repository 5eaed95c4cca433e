"""Prices of models, and the cost of a call in money.

Prices are decimal numbers, as their file has them, and a cost is a sum of exact products. Only the
cost of a whole call is rounded, once, up to a billionth of the currency unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from os import PathLike, fspath
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.usage import Cost, Usage
from zae_limiter.models.limit import MAX_UNITS
from zae_limiter.models.money import in_currency
from zae_limiter.models.timestamps import BILLIONTHS

if TYPE_CHECKING:
    from zae_limiter.llm.price_files import PriceTable

DIGEST_SHOWN = 12  # hexadecimal digits of a digest in a version: 48 bits
_MOST_SUGGESTED = 3
_GEMINI_PREFIX = "models/"  # Gemini's SDK accepts a model with and without it


class TokenPrices(NamedTuple):
    """The prices of one token of each kind, in currency units.

    ``cached_input`` is the price of input that is read from the provider's cache, ``cache_write``
    of input that is written to it, and ``cache_write_1h`` of input that is kept there for an hour.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    reasoning: Decimal

    def exact_cost(self, usage: Usage) -> Fraction:
        """Return the cost of a usage, without rounding."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        for_an_hour, reasoning = usage.cache_write_1h_tokens, usage.reasoning_tokens
        counts = (
            max(0, usage.input_tokens - cached - written),
            max(0, usage.output_tokens - reasoning),
            cached,
            max(0, written - for_an_hour),
            for_an_hour,
            reasoning,
        )
        parts = zip(self, counts, strict=True)
        return sum((Fraction(price) * count for price, count in parts if count), Fraction(0))


class Tier(NamedTuple):
    """The prices of requests whose input, cached tokens included, is above a number of tokens."""

    above: int
    prices: TokenPrices


class PriceList(NamedTuple):
    """The prices of one model: the usual ones, and those of requests with a long input."""

    usual: TokenPrices
    tiers: tuple[Tier, ...] = ()  # sorted by ``above``

    def prices_of(self, usage: Usage) -> TokenPrices:
        """Return the prices that apply to all tokens of a request."""
        applying = self.usual
        for tier in self.tiers:
            if usage.input_tokens > tier.above:
                applying = tier.prices
        return applying


class ModelPrices(NamedTuple):
    """The prices of one model in a price file; ``batch`` is None if the file has none."""

    standard: PriceList
    batch: PriceList | None = None


class PriceFile(NamedTuple):
    """The identity of a price file.

    ``version`` is the version that the file declares, if any, and the beginning of ``digest``, the
    SHA-256 of its contents.
    """

    source: str
    version: str
    digest: str
    currency: str


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of one model, from one version of a price file."""

    model: str
    file: PriceFile
    prices: PriceList

    def cost(self, *usages: Usage) -> Cost:
        """Return the cost of the requests of one call; the sum is rounded up to a billionth.

        Each usage is one request, since a price for long inputs applies to a single request.
        """
        exact = sum(
            (self.prices.prices_of(usage).exact_cost(usage) for usage in usages), Fraction(0)
        )
        billionths = min(math.ceil(exact * BILLIONTHS), MAX_UNITS * BILLIONTHS)
        return Cost(in_currency(billionths), self.file.currency, self.file.version)


class Prices:
    """The prices of models, from a file; ``Prices.load`` reads it.

    ``file`` tells files apart: its name, its version, the digest of its contents, its currency.
    """

    def __init__(self, table: PriceTable) -> None:
        self._table = table
        short = table.digest[:DIGEST_SHOWN]
        version = short if table.version is None else f"{table.version}+{short}"
        self.file = PriceFile(table.source, version, table.digest, table.currency)

    @property
    def version(self) -> str:
        """The version of the file."""
        return self.file.version

    @property
    def currency(self) -> str:
        """The currency of all prices."""
        return self.file.currency

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Prices:
        """Read a price file: YAML of our own form, or the JSON that LiteLLM publishes.

        Raises PriceFileError with the place of every mistake. A price that the file does not have
        is never taken as free: ``of`` refuses the model.
        """
        from zae_limiter.llm.price_files import read_prices

        return cls(read_prices(fspath(path)))

    def of(self, model: str, *, batch: bool = False) -> ModelPrice:
        """Return the price of a model, or its price in batches; raise ValidationError without one.

        A price of 0 is a price.
        """
        name = self._name_of(model)
        priced = self._table.models[name]
        prices = priced.batch if batch else priced.standard
        if prices is None:
            raise ValidationError(
                "model", model, f"has no price for batches in {self.file.source}; add one"
            )
        return ModelPrice(name, self.file, prices)

    def __contains__(self, model: object) -> bool:
        return model in self._table.models or model in self._table.aliases

    def __len__(self) -> int:
        return len(self._table.models)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.models)

    def __repr__(self) -> str:
        return f"Prices({self.file.source!r}, version {self.version}, {len(self):,} models)"

    def _name_of(self, model: object) -> str:
        if not isinstance(model, str) or not model:
            raise ValidationError("model", model, "must be the name of a model")
        for name in (model, model.removeprefix(_GEMINI_PREFIX)):
            if name in self._table.models:
                return name
            if name in self._table.aliases:
                return self._table.aliases[name]
        raise ValidationError("model", model, self._unknown(model))

    def _unknown(self, model: str) -> str:
        reason = self._table.unpriced.get(model)
        if reason is not None:
            return f"has no price by token in {self.file.source}: {reason}"
        close = similar_names(model, [*self._table.models, *self._table.aliases])
        suggestion = f" (did you mean {', '.join(map(repr, close))}?)" if close else ""
        return (
            f"has no price in {self.file.source}{suggestion}, and an unknown price is not 0: add "
            "the model to the file, or pass prices=prices.of(NAME) with a name that it has"
        )


def similar_names(model: str, names: Iterable[str]) -> list[str]:
    """Return the names that resemble a model's, those with another provider's prefix first."""
    offered = sorted(set(names))
    bare = model.rsplit("/", 1)[-1]
    with_prefix = [name for name in offered if name.rsplit("/", 1)[-1] == bare]
    close = get_close_matches(model, offered, n=_MOST_SUGGESTED)
    return list(dict.fromkeys([*with_prefix, *close]))[:_MOST_SUGGESTED]


def completed(prices: Mapping[str, Decimal]) -> TokenPrices:
    """Return the prices of all kinds of tokens from those that are given.

    A kind without a price costs as much as the kind that it is a part of.
    """
    cached = prices.get("cached_input", prices["input"])
    written = prices.get("cache_write", prices["input"])
    return TokenPrices(
        prices["input"],
        prices["output"],
        cached,
        written,
        prices.get("cache_write_1h", written),
        prices.get("reasoning", prices["output"]),
    )
