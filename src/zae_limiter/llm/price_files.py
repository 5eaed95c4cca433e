"""Price files: YAML of our own form, and the JSON that LiteLLM publishes.

Numbers are read from their text, never through a float. Size and depth are checked before a parser
sees the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, InvalidOperation
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zae_limiter.bounded_json import parse_bounded
from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.prices import ModelPrices, PriceList, Tier, completed

if TYPE_CHECKING:
    from zae_limiter.bounded_yaml import YamlNode

MAX_BYTES: Final = 16_000_000  # the file of LiteLLM has about three million
KINDS: Final = ("input", "output", "cached_input", "cache_write", "cache_write_1h", "reasoning")
REQUIRED: Final = ("input", "output")
TOP_KEYS: Final = ("version", "currency", "models")
LIST_KEYS: Final = (*KINDS, "above")
MODEL_KEYS: Final = (*LIST_KEYS, "batch", "aliases")
TIER_KEYS: Final = ("tokens", *KINDS)
PER_EXPONENT: Final = 6  # a price of our own form is for a million tokens
_EXACT: Final = Context(prec=100)  # more digits than a price may have, so that none is rounded
MAX_PRICE: Final = Decimal(1_000_000)  # of a million tokens in our form, of one in LiteLLM's
MAX_PLACES: Final = 40  # decimal places of a price; real ones have ten or so
MAX_VERSION: Final = 100  # characters
DEFAULT_CURRENCY: Final = "USD"
_NUMBER = re.compile(r"[0-9][0-9_]{0,29}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?|\.[0-9]{1,30}")
_WHOLE = re.compile(r"[0-9][0-9_]{0,14}")
_CURRENCY = re.compile(r"[A-Z]{3}")


class PriceProblem(NamedTuple):
    """One mistake of a price file. Lines count from 1; the line of a JSON file is 0."""

    source: str
    line: int
    path: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.path}: {self.reason}" if self.path else f"{place}: {self.reason}"


class PriceFileError(ValidationError):
    """A price file has mistakes, which are all in ``problems``."""

    def __init__(self, problems: Iterable[PriceProblem]) -> None:
        self.problems = tuple(problems)
        text = "\n".join(map(str, self.problems))
        super().__init__("prices", self.problems[0].source, text)
        self.args = (text,)

    def __reduce__(self) -> tuple[type[PriceFileError], tuple[tuple[PriceProblem, ...]]]:
        return type(self), (self.problems,)


class PriceTable(NamedTuple):
    """The contents of a price file.

    ``aliases`` are other names of models. ``unpriced`` are models that the file names without a
    usable price by token, with the reason.
    """

    source: str
    digest: str
    currency: str
    version: str | None
    models: Mapping[str, ModelPrices]
    aliases: Mapping[str, str]
    unpriced: Mapping[str, str]


def read_prices(path: str) -> PriceTable:
    """Read a file: JSON if its name ends in ``.json`` or its text begins with a brace."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _failed(path, f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise _failed(path, f"has more than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _failed(path, f"is not UTF-8 (byte {error.start})") from error
    digest = sha256(data).hexdigest()
    is_json = path.lower().endswith(".json") or text.lstrip()[:1] == "{"
    return _read_litellm(text, path, digest) if is_json else _read_yaml(text, path, digest)


def _failed(source: str, reason: str, line: int = 0) -> PriceFileError:
    return PriceFileError([PriceProblem(source, line, "", reason)])


def _price(text: str) -> Decimal:
    """Return a price from its text; raise ValueError if it is none."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a number from 0 up, such as 2.50")
    return _checked(Decimal(text.replace("_", "")))


def _checked(number: Decimal) -> Decimal:
    """Return a price; raise ValueError if it is out of bounds, for which no product is exact."""
    if not number.is_finite() or number < 0:
        raise ValueError("must be a number from 0 up, such as 2.50")
    if number > MAX_PRICE:
        raise ValueError(f"must be at most {MAX_PRICE:,}")
    if number == 0:
        return Decimal(0)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -MAX_PLACES:
        raise ValueError(f"has more than {MAX_PLACES} decimal places")
    return number


# --- our own form ----------------------------------------------------------------------------


def _read_yaml(text: str, source: str, digest: str) -> PriceTable:
    from zae_limiter.bounded_yaml import MalformedYaml, read_nodes  # it needs PyYAML

    try:
        root = read_nodes(text)
    except MalformedYaml as error:
        raise _failed(source, f"is not YAML: {error.reason}", error.line) from error
    if root is None:
        raise _failed(source, "is empty; it needs `models:` with the prices of each model")
    reader = _YamlReader(source)
    table = reader.table(root, digest)
    if reader.problems:
        raise PriceFileError(sorted(reader.problems, key=lambda problem: problem.line))
    return table


class _YamlReader:
    """Reads nodes of YAML, whose scalars still have their text. Mistakes are collected."""

    def __init__(self, source: str) -> None:
        self.problems: list[PriceProblem] = []
        self._source = source

    def table(self, root: YamlNode, digest: str) -> PriceTable:
        keys = self._mapping(root, "", TOP_KEYS)
        version = self._text(keys.get("version"), "version")
        if version is not None and len(version) > MAX_VERSION:
            self._report(keys["version"], "version", f"has more than {MAX_VERSION} characters")
        currency = self._text(keys.get("currency"), "currency") or DEFAULT_CURRENCY
        if not _CURRENCY.fullmatch(currency):
            self._report(keys["currency"], "currency", "must be three capital letters, such as USD")
        models: dict[str, ModelPrices] = {}
        aliases: dict[str, str] = {}
        if "models" not in keys:
            self._report(root, "models", "is missing; it has the prices of each model")
        else:
            entries = self._mapping(keys["models"], "models", None)
            if not entries:
                self._report(keys["models"], "models", "is empty")
            for name, node in entries.items():
                self._model(name, node, models, aliases)
            for alias in aliases.keys() & entries.keys():
                place = f"models.{aliases[alias]}.aliases"
                self._report(entries[alias], place, f"{alias!r} is a model of its own")
        return PriceTable(self._source, digest, currency, version, models, aliases, {})

    def _model(
        self, name: str, node: YamlNode, models: dict[str, ModelPrices], aliases: dict[str, str]
    ) -> None:
        path, before = f"models.{name}", len(self.problems)
        keys = self._mapping(node, path, MODEL_KEYS)
        standard = self._price_list(node, keys, path)
        batch = None
        if "batch" in keys:
            of_batch = self._mapping(keys["batch"], f"{path}.batch", LIST_KEYS)
            batch = self._price_list(keys["batch"], of_batch, f"{path}.batch", like=keys)
        for alias in self._texts(keys.get("aliases"), f"{path}.aliases"):
            if alias in aliases:
                self._report(keys["aliases"], f"{path}.aliases", f"{alias!r} comes twice")
            aliases[alias] = name
        if len(self.problems) == before:
            assert standard is not None, "a model without prices has a problem"
            models[name] = ModelPrices(standard, batch)

    def _price_list(
        self,
        node: YamlNode,
        keys: dict[str, YamlNode],
        path: str,
        like: Mapping[str, YamlNode] | None = None,
    ) -> PriceList | None:
        """Read prices and their tiers; ``like`` has the keys that a list for batches must have."""
        usual = self._prices(node, keys, path, REQUIRED if like is None else tuple(like))
        tiers: list[tuple[int, Any]] = []
        needed = [kind for kind in KINDS if kind in keys]
        for at, item in enumerate(self._items(keys.get("above"), f"{path}.above")):
            place = f"{path}.above[{at}]"
            inner = self._mapping(item, place, TIER_KEYS)
            tokens = self._tokens(item, inner, place)
            prices = self._prices(item, inner, place, needed)
            if tokens is not None and prices is not None:
                tiers.append((tokens, prices))
        if like is not None and "above" in like and "above" not in keys:
            self._report(node, path, "lacks `above`, which the model has")
        if sorted({tokens for tokens, _ in tiers}) != [tokens for tokens, _ in tiers]:
            self._report(keys["above"], f"{path}.above", "must be sorted by tokens, each once")
        if usual is None:
            return None
        return PriceList(
            completed(usual), tuple(Tier(tokens, completed(prices)) for tokens, prices in tiers)
        )

    def _prices(
        self, node: YamlNode, keys: Mapping[str, YamlNode], path: str, needed: Iterable[str]
    ) -> dict[str, Decimal] | None:
        """Read the prices of a million tokens, as prices of one; None if one is wrong."""
        before = len(self.problems)
        prices: dict[str, Decimal] = {}
        for kind in KINDS:
            if kind not in keys:
                continue
            text = self._text(keys[kind], f"{path}.{kind}")
            try:
                prices[kind] = _EXACT.scaleb(_price(text or ""), -PER_EXPONENT)
            except ValueError as error:
                self._report(keys[kind], f"{path}.{kind}", f"{error}, for a million tokens")
        missing = [kind for kind in needed if kind in KINDS and kind not in keys]
        missing += [kind for kind in REQUIRED if kind not in keys and kind not in missing]
        if missing:
            self._report(
                node,
                path,
                f"lacks {', '.join(missing)}; a price that is missing is not 0: write each price "
                "that the model has, also 0",
            )
        return prices if len(self.problems) == before else None

    def _tokens(self, node: YamlNode, keys: Mapping[str, YamlNode], path: str) -> int | None:
        if "tokens" not in keys:
            self._report(node, path, "lacks tokens: the size of the input above which it applies")
            return None
        text = self._text(keys["tokens"], f"{path}.tokens") or ""
        if not _WHOLE.fullmatch(text):
            self._report(keys["tokens"], f"{path}.tokens", "must be a whole number, such as 200000")
            return None
        return int(text.replace("_", ""))

    # --- nodes

    def _mapping(
        self, node: YamlNode, path: str, allowed: tuple[str, ...] | None
    ) -> dict[str, YamlNode]:
        if node.id != "mapping":
            self._report(node, path, "must be a mapping")
            return {}
        mapping: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value) if key.id == "scalar" else ""
            place = f"{path}.{name}" if path else name
            if not name:
                self._report(key, path, "must have plain text as keys")
            elif name in mapping:
                self._report(key, place, "comes twice; keep one")
            elif allowed is not None and name not in allowed:
                close = get_close_matches(name, allowed, n=1)
                advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(allowed)}"
                self._report(key, place, f"is unknown; {advice}")
            else:
                mapping[name] = value
        return mapping

    def _items(self, node: YamlNode | None, path: str) -> list[Any]:
        if node is None:
            return []
        if node.id != "sequence":
            self._report(node, path, "must be a list")
            return []
        return list(node.value)

    def _texts(self, node: YamlNode | None, path: str) -> list[str]:
        texts = [self._text(item, path) for item in self._items(node, path)]
        return [text for text in texts if text]

    def _text(self, node: YamlNode | None, path: str) -> str | None:
        if node is None:
            return None
        if node.id != "scalar" or not str(node.value):
            self._report(node, path, "must be a plain value")
            return None
        return str(node.value)

    def _report(self, node: YamlNode, path: str, reason: str) -> None:
        from zae_limiter.bounded_yaml import place_of

        self.problems.append(PriceProblem(self._source, place_of(node)[0], path, reason))


# --- the form of LiteLLM ---------------------------------------------------------------------

# Entries that are no models: an example of an entry, and rules about names.
_NO_MODELS: Final = frozenset({"sample_spec", "fallback_generalizations"})
_FIELDS: Final = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "input_cost_per_token_cache_hit": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "output_cost_per_reasoning_token": "reasoning",
}
_LONGEST_FIRST: Final = sorted(_FIELDS, key=len, reverse=True)
_FIELD = re.compile(rf"({'|'.join(_LONGEST_FIRST)})(?:_above_([0-9]{{1,6}})k_tokens)?(_batches)?")
# A tuple: a file may have a list in the place of a mode, and a set would refuse to look for it.
_WITHOUT_OUTPUT: Final = ("embedding", "moderation", "rerank")
# Its long prices apply from the named size on, those of all other providers above it.
_FROM_THE_SIZE_ON: Final = "xai"

_ByTier = dict[int, dict[str, Decimal]]  # prices by kind, by the size above which they apply


def _read_litellm(text: str, source: str, digest: str) -> PriceTable:
    try:
        document = parse_bounded(text, longest=MAX_BYTES, parse_float=_decimal)
    except (ValueError, RecursionError) as error:
        raise _failed(source, f"is not JSON: {error}", getattr(error, "lineno", 0)) from error
    if not isinstance(document, dict) or not document:
        raise _failed(source, "must be a JSON object of models, as LiteLLM publishes it")
    models: dict[str, ModelPrices] = {}
    aliases: dict[str, str] = {}
    unpriced: dict[str, str] = {}
    for name, entry in document.items():
        if name in _NO_MODELS:
            continue
        try:
            models[name] = _litellm_model(entry)
        except ValueError as error:
            unpriced[name] = str(error)
            continue
        others = entry.get("aliases")
        for alias in others if isinstance(others, list) else ():
            if isinstance(alias, str):
                aliases.setdefault(alias, name)
    if not models:
        first, reason = next(iter(unpriced.items()), ("", "it names no model"))
        where = f"{first}: {reason}" if first else reason
        raise _failed(source, f"has no model with prices by token; {where}")
    return PriceTable(source, digest, DEFAULT_CURRENCY, None, models, aliases, unpriced)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:40]} is out of range") from None


def _litellm_model(entry: object) -> ModelPrices:
    """Return the prices of an entry; raise ValueError with the reason if it has none by token."""
    if not isinstance(entry, dict):
        raise ValueError("the entry is no object")
    standard: _ByTier = {}
    batch: _ByTier = {}
    from_on = 1 if entry.get("litellm_provider") == _FROM_THE_SIZE_ON else 0
    for field, value in entry.items():
        match = _FIELD.fullmatch(field)
        if match is None or value is None:
            continue
        kind, thousands, for_batches = match.groups()
        above = 0 if thousands is None else int(thousands) * 1000 - from_on
        tiers = standard if for_batches is None else batch
        tiers.setdefault(above, {})[_FIELDS[kind]] = _litellm_price(field, value)
    _add_ranges(standard, entry.get("tiered_pricing"))
    usual = standard.get(0, {})
    if entry.get("mode") in _WITHOUT_OUTPUT:
        usual.setdefault("output", Decimal(0))
    missing = [kind for kind in REQUIRED if kind not in usual]
    if missing:
        raise ValueError(f"it has no price of {' and '.join(missing)} tokens")
    listed = _litellm_list(standard, [])
    if any(kind not in batch.get(0, {}) for kind in REQUIRED):
        return ModelPrices(listed)
    return ModelPrices(listed, _litellm_list(batch, [standard]))


def _litellm_list(by_tier: _ByTier, beside: list[_ByTier]) -> PriceList:
    """Return the prices with their tiers.

    A kind without a price of its own has, in a tier, the price of the tier before; a price that
    is missing for batches is the usual one, which is higher.
    """
    thresholds = sorted({above for tiers in (by_tier, *beside) for above in tiers} | {0})
    lists: list[Tier] = []
    known: dict[str, Decimal] = {}
    for above in thresholds:
        for tiers in (*beside, by_tier):
            known.update(tiers.get(above, {}))
        lists.append(Tier(above, completed(known)))
    return PriceList(lists[0].prices, tuple(lists[1:]))


def _add_ranges(by_tier: _ByTier, ranges: object) -> None:
    """Add ``tiered_pricing``: a list of ranges of input tokens, each with its prices."""
    for item in ranges if isinstance(ranges, list) else ():
        bounds = item.get("range") if isinstance(item, dict) else None
        first = bounds[0] if isinstance(bounds, list) and bounds else None
        if isinstance(first, Decimal) and first == first.to_integral_value():
            first = int(first)
        if type(first) is not int or not 0 <= first <= 10**12:
            raise ValueError("its tiered_pricing has an entry without a range")
        prices = by_tier.setdefault(first, {})
        for field, value in item.items():
            if field in _FIELDS and value is not None:
                prices[_FIELDS[field]] = _litellm_price(field, value)


def _litellm_price(field: str, value: object) -> Decimal:
    try:
        if isinstance(value, str):
            return _price(value)
        if isinstance(value, Decimal) or type(value) is int:
            return _checked(Decimal(value))
        raise ValueError("must be a number from 0 up")
    except ValueError as error:
        raise ValueError(f"its {field} {error}") from None
