"""Price files: both forms, their mistakes, and the cost of usages by them."""

import json
import pickle
from decimal import Decimal

import pytest

from zae_limiter import llm
from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.price_files import MAX_BYTES
from zae_limiter.llm.priced_calls import budget_among, price_of
from zae_limiter.models.limit import Limit

OWN = """
version: 2026-11-01
currency: EUR
models:
  gpt-4.1:
    input: 2.00
    cached_input: .5
    output: 8_0.00
    batch: {input: 1, cached_input: 0.25, output: 40}
    aliases: [gpt-4.1-2025-04-14]
  claude:
    input: 3
    cached_input: 0.30
    cache_write: 3.75
    cache_write_1h: 6
    output: 15
    reasoning: 20
    above:
      - {tokens: 200_000, input: 6, cached_input: 0.6, cache_write: 7.5, cache_write_1h: 12,
         output: 22.5, reasoning: 30}
      - {tokens: 500_000, input: 9, cached_input: 0.9, cache_write: 9, cache_write_1h: 18,
         output: 30, reasoning: 30}
  local: {input: 0, output: 0}
"""

LITELLM = {
    "sample_spec": {"input_cost_per_token": 0.0, "max_tokens": "a sentence"},
    "fallback_generalizations": {"rules": []},
    "gpt-5": {
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-07,
        "input_cost_per_token_batches": 6.25e-07,
        "output_cost_per_token_batches": 5e-06,
        "input_cost_per_token_above_272k_tokens": 2.5e-06,
        "output_cost_per_token_above_272k_tokens": 1.5e-05,
        "input_cost_per_token_priority": 9e-06,
        "max_input_tokens": 400000,
        "litellm_provider": "openai",
        "mode": "chat",
        "aliases": ["gpt-5-2025-08-07"],
        "supports_vision": True,
    },
    "azure/gpt-5": {"input_cost_per_token": "1.25e-06", "output_cost_per_token": 1e-05},
    "claude": {
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_creation_input_token_cost": 3.75e-06,
        "cache_creation_input_token_cost_above_1hr": 6e-06,
        "cache_read_input_token_cost": 3e-07,
        "output_cost_per_reasoning_token": None,
        "input_cost_per_token_above_128k_tokens": 4e-06,
        "input_cost_per_token_above_200k_tokens": 6e-06,
        "output_cost_per_token_above_200k_tokens": 2.25e-05,
        "cache_read_input_token_cost_above_200k_tokens": 6e-07,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
    },
    "grok": {
        "litellm_provider": "xai",
        "input_cost_per_token": 2e-06,
        "output_cost_per_token": 6e-06,
        "input_cost_per_token_above_200k_tokens": 4e-06,
    },
    "qwen": {
        "tiered_pricing": [
            {"range": [32000.0, 128000.0], "input_cost_per_token": 5e-06},
            {"range": [0, 32000], "input_cost_per_token": 2e-06, "output_cost_per_token": 3e-06},
        ]
    },
    "thinker": {
        "input_cost_per_token": 1e-06,
        "output_cost_per_token": 2e-06,
        "output_cost_per_reasoning_token": 3e-06,
    },
    "embedder": {"input_cost_per_token": 2e-08, "mode": "embedding"},
    "painter": {"output_cost_per_image": 0.04, "mode": "image_generation"},
    "half": {"input_cost_per_token": 2e-08, "mode": "chat"},
    "below": {"input_cost_per_token": -1, "output_cost_per_token": 1},
    "word": {"input_cost_per_token": "much", "output_cost_per_token": 1},
    "ranged": {"tiered_pricing": [{"input_cost_per_token": 1}]},
}


@pytest.fixture
def load(tmp_path):
    def load(text, name="prices.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return llm.Prices.load(path)

    return load


@pytest.fixture
def own(load):
    return load(OWN)


@pytest.fixture
def litellm(load):
    return load(json.dumps(LITELLM), "model_prices_and_context_window.json")


def cost(price, *usages):
    return price.cost(*usages).amount


# --- our own form


def test_prices_are_those_of_a_million_tokens(own):
    usage = llm.Usage(1_000, 200, cached_tokens=600)
    assert cost(own.of("gpt-4.1"), usage) == Decimal("0.0171")  # 400 · 2 + 600 · 0.5 + 200 · 80
    assert own.of("gpt-4.1-2025-04-14") == own.of("gpt-4.1")
    assert own.of("models/gpt-4.1") == own.of("gpt-4.1")
    assert "gpt-4.1" in own
    assert "gpt-4.1-2025-04-14" in own
    assert list(own) == ["gpt-4.1", "claude", "local"]


def test_batches_have_their_own_price_or_none(own):
    usage = llm.Usage(1_000, 200, cached_tokens=600)
    assert cost(own.of("gpt-4.1", batch=True), usage) == Decimal("0.00855")
    with pytest.raises(ValidationError, match="no price for batches"):
        own.of("local", batch=True)


def test_each_kind_of_tokens_has_its_price(own):
    price = own.of("claude")
    usage = llm.Usage(
        100, 50, cached_tokens=30, cache_write_tokens=20, reasoning_tokens=10,
        cache_write_1h_tokens=5,
    )  # fmt: skip
    # 50 · 3 + 30 · 0.3 + 15 · 3.75 + 5 · 6 + 40 · 15 + 10 · 20, of a millionth
    assert cost(price, usage) == Decimal("0.00104525")


@pytest.mark.parametrize(
    ("tokens", "dollars"),
    [(200_000, "0.60"), (200_001, "1.200006"), (500_000, "3.00"), (500_001, "4.500009")],
)
def test_a_long_input_is_priced_as_a_whole(own, tokens, dollars):
    assert cost(own.of("claude"), llm.Usage(tokens)) == Decimal(dollars)


def test_a_price_of_zero_is_a_price(own):
    assert own.of("local").cost(llm.Usage(10**9, 10**9)) == llm.Cost(
        Decimal("0.00"), "EUR", own.version
    )


def test_a_version_is_the_declared_one_and_a_digest(own, load):
    assert own.version == f"2026-11-01+{own.file.digest[:12]}"
    assert len(own.file.digest) == 64
    assert load(OWN).version == own.version
    assert load(OWN + "\n").version != own.version
    bare = load("models: {a: {input: 1, output: 1}}")
    assert bare.version == bare.file.digest[:12]
    assert bare.currency == "USD"
    assert own.currency == "EUR"
    assert str(own.of("claude").cost(llm.Usage(1_000_000))) == "9.00 EUR"
    assert "3 models" in repr(own)


def test_a_number_is_never_a_float(load):
    # As floats, the sum of both would be 0.30000000000000004.
    price = load("models: {a: {input: 0.1, output: 0.2}}").of("a")
    assert price.prices.usual.input == Decimal("1e-7")
    assert cost(price, llm.Usage(1_000_000, 1_000_000)) == Decimal("0.30")
    tiny = load("models: {a: {input: 0.123456789012345678901234567891, output: 1e-9}}").of("a")
    assert tiny.prices.usual.input == Decimal("0.123456789012345678901234567891e-6")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["is empty; it needs `models:`"]),
        ("models: [", ["is not YAML: did not find"]),
        ("[" * 100, ["is nested more than 32 levels deep"]),
        ("- a", [":1: must be a mapping", ":1: models: is missing"]),
        ("models: {}", [":1: models: is empty"]),
        ("modles: {}", [":1: modles: is unknown; did you mean models?"]),
        ("currency: usd\nmodels: {a: {input: 1, output: 1}}", ["1: currency: must be three"]),
        ("models:\n  a:\n    input: 1", [":3: models.a: lacks output; a price that is missing"]),
        ("models:\n  a: {input: 1, output: -1}", [":2: models.a.output: must be a number from 0"]),
        ("models:\n  a: {input: 1, output: nan}", [":2: models.a.output: must be a number"]),
        ("models:\n  a: {input: , output: [1]}", ["a.input: must be", "a.output: must be a plain"]),
        ("models:\n  a: {input: 1e60, output: 2e6}", ["a.input: must be at most", "a.output"]),
        ("models:\n  a: {input: 1e-99, output: 1}", ["has more than 40 decimal places"]),
        ("models:\n  a: {inptu: 1}", [":2: models.a.inptu: is unknown; did you mean input?"]),
        (
            "models:\n  a: {input: 1, output: 1}\n  a: {input: 2, output: 2}",
            [":3: models.a: comes twice; keep one"],
        ),
        (
            ("models:\n  a: {input: 1, output: 1, aliases: [b, c]}\n"
            "  b: {input: 1, output: 1, aliases: [c]}"),
            ["'b' is a model of its own", "'c' comes twice"],
        ),
        (
            "models:\n  a: {input: 1, output: 1, cached_input: 1, batch: {input: 1, output: 1}}",
            [":2: models.a.batch: lacks cached_input"],
        ),
        (
            ("models:\n  a:\n    input: 1\n    output: 1\n    batch: {input: 1, output: 1}\n"
            "    above: [{tokens: many, input: 1, output: 1}, {output: 1}]"),
            [
                ":5: models.a.batch: lacks `above`",
                ":6: models.a.above[0].tokens: must be a whole number",
                ":6: models.a.above[1]: lacks tokens",
                ":6: models.a.above[1]: lacks input",
            ],
        ),
        (
            ("models:\n  a: {input: 1, output: 1, above: [{tokens: 2, input: 1, output: 1},"
            "{tokens: 1, input: 1, output: 1}]}"),
            ["models.a.above: must be sorted by tokens"],
        ),
        ("models:\n  a: {input: 1, output: 1, above: 3}", ["models.a.above: must be a list"]),
        ("version: " + "9" * 101 + "\nmodels: {a: {input: 1, output: 1}}", ["more than 100"]),
        ("models:\n  ? [a]\n  : {input: 1, output: 1}", ["must have plain text as keys"]),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_lines(load, text, problems):
    with pytest.raises(llm.PriceFileError) as caught:
        load(text)
    for problem in problems:
        assert problem in str(caught.value)
    assert len(caught.value.problems) >= len(problems)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems
    assert isinstance(caught.value, ValidationError)


def test_files_that_cannot_be_read_are_refused(load, tmp_path):
    with pytest.raises(llm.PriceFileError, match="cannot be read: No such file"):
        llm.Prices.load(tmp_path / "none.yaml")
    with pytest.raises(llm.PriceFileError, match=r"has more than 16,000,000 bytes"):
        load(b" " * (MAX_BYTES + 1))
    with pytest.raises(llm.PriceFileError, match="is not UTF-8"):
        load(b"models: \xff")


# --- the form of LiteLLM


def test_the_file_of_litellm_is_read(litellm):
    assert litellm.currency == "USD"
    assert litellm.version == litellm.file.digest[:12]
    price = litellm.of("gpt-5")
    usage = llm.Usage(100_000, 1_000, cached_tokens=40_000)
    assert cost(price, usage) == Decimal("0.09")  # 0.075 + 0.005 + 0.01
    assert litellm.of("gpt-5-2025-08-07") == price
    assert cost(litellm.of("azure/gpt-5"), llm.Usage(1_000_000)) == Decimal("1.25")


def test_a_form_is_recognised_by_its_text(load):
    assert len(load(json.dumps(LITELLM), "prices.txt")) == 7


def test_tiers_of_litellm_inherit_the_prices_that_they_lack(litellm):
    gpt, claude = litellm.of("gpt-5"), litellm.of("claude")
    long = llm.Usage(300_000, 1_000, cached_tokens=100_000)
    assert cost(gpt, long) == Decimal("0.5275")  # 0.5 + 0.0125 (as below) + 0.015
    middle = llm.Usage(150_000, 1_000, cached_tokens=50_000)
    assert cost(claude, middle) == Decimal("0.43")  # 0.4 + 0.015 + 0.015
    written = llm.Usage(300_000, cache_write_tokens=300_000, cache_write_1h_tokens=100_000)
    assert cost(claude, written) == Decimal("1.95")  # 0.75 (as below) + 1.2
    assert cost(litellm.of("grok"), llm.Usage(200_000)) == Decimal("0.80")
    assert cost(litellm.of("grok"), llm.Usage(199_999)) == Decimal("0.399998")


def test_ranges_of_litellm_are_tiers(litellm):
    price = litellm.of("qwen")
    assert cost(price, llm.Usage(32_000, 1_000)) == Decimal("0.067")
    assert cost(price, llm.Usage(32_001, 1_000)) == Decimal("0.163005")


def test_batches_of_litellm_cost_no_less_than_it_says(litellm):
    price = litellm.of("gpt-5", batch=True)
    assert cost(price, llm.Usage(1_000, 100, cached_tokens=400)) == Decimal("0.000925")
    assert cost(price, llm.Usage(300_000)) == Decimal("0.75"), "the usual price of long inputs"
    with pytest.raises(ValidationError, match="no price for batches"):
        litellm.of("claude", batch=True)


def test_reasoning_and_embeddings_of_litellm(litellm):
    usage = llm.Usage(10, 100, reasoning_tokens=60)
    assert cost(litellm.of("thinker"), usage) == Decimal("0.00027")
    assert cost(litellm.of("embedder"), llm.Usage(1_000_000)) == Decimal("0.02")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("painter", "no price by token.*no price of input and output tokens"),
        ("half", "no price of output tokens"),
        ("below", "its input_cost_per_token must be a number from 0 up"),
        ("word", "its input_cost_per_token must be a number"),
        ("ranged", "tiered_pricing has an entry without a range"),
        ("sample_spec", "an unknown price is not 0"),
        ("gpt-55", "did you mean 'gpt-5'"),
        ("openai/gpt-5", "did you mean 'azure/gpt-5', 'gpt-5'"),
        ("", "must be the name of a model"),
        (None, "must be the name of a model"),
    ],
)
def test_a_model_without_a_price_is_refused(litellm, model, reason):
    with pytest.raises(ValidationError, match=reason):
        litellm.of(model)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[1]", "must be a JSON object of models"),
        ("{}", "must be a JSON object of models"),
        ('{"a": 1}', "has no model with prices by token; a: the entry is no object"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "is nested more than 32 levels deep"),
        ('{"a": {"input_cost_per_token": 1e999999999999999999999}}', "is out of range"),
        ('{"a": {"input_cost_per_token": NaN, "output_cost_per_token": 1}}', "must be a number"),
        ('{"a": {"input_cost_per_token": 1e-999999, "output_cost_per_token": 1}}', "places"),
        ('{"a": {"input_cost_per_token": 0e999999, "output_cost_per_token": 1e7}}', "at most"),
    ],
)  # fmt: skip
def test_a_bad_file_of_litellm_is_refused(load, text, problem):
    with pytest.raises(llm.PriceFileError, match=problem):
        load(text, "prices.json")


# --- calls


def test_the_price_is_that_of_the_model_of_the_request(litellm):
    assert price_of(litellm, {"model": "claude"}, "gpt-5").model == "claude"
    assert price_of(litellm, {"modelId": "grok"}, "gpt-5").model == "grok"
    assert price_of(litellm, {"messages": []}, "gpt-5").model == "gpt-5"
    assert price_of(litellm, None, "gpt-5").model == "gpt-5"
    assert price_of(litellm.of("claude"), {"model": "gpt-5"}, "x").model == "claude"
    with pytest.raises(ValidationError, match=r"llm\.Prices\.load"):
        price_of({"gpt-5": 3}, None, "gpt-5")


def budgets(**currencies):
    return [Limit.budget(name, 1, currency=each, per="day") for name, each in currencies.items()]


def test_the_budget_is_found_by_its_currency():
    limits = [Limit.per_minute("rpm", 1), *budgets(spend="USD", euros="EUR")]
    assert budget_among(limits, "USD", None, "m") == "spend"
    assert budget_among(limits, "EUR", None, "m") == "euros"
    two = budgets(usd="USD", team="USD")
    assert budget_among(two, "USD", None, "m") == "usd"
    assert budget_among(two, "USD", "team", "m") == "team"
    with pytest.raises(ValidationError, match="is needed: a, b of 'm' are in USD"):
        budget_among(budgets(a="USD", b="USD"), "USD", None, "m")
    with pytest.raises(ValidationError, match="is in EUR, but the prices are in USD"):
        budget_among(limits, "USD", "euros", "m")
    with pytest.raises(ValidationError, match="is not a budget"):
        budget_among(limits, "USD", "rpm", "m")
    with pytest.raises(ValidationError, match="its limits are euros, rpm, spend"):
        budget_among(limits, "USD", "usd", "m")
    with pytest.raises(ValidationError, match=r'Limit\.budget\("chf"'):
        budget_among(limits, "CHF", None, "m")


def test_costs_by_the_same_prices_add_up(own):
    price = own.of("claude")
    first, second = (
        llm.Usage(1_000, cost=price.cost(llm.Usage(1_000))),
        llm.Usage(2_000, cost=price.cost(llm.Usage(2_000))),
    )
    assert (first + second).cost == llm.Cost(Decimal("0.009"), "EUR", own.version)
    assert (first + llm.Usage(1)).cost is None
