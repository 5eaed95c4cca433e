"""The cost of any usage by any prices, against rational numbers."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.llm import ModelPrice, Usage
from zae_limiter.llm.price_files import KINDS
from zae_limiter.llm.prices import PriceFile, PriceList, Tier, completed

BILLIONTH = Fraction(1, 10**9)
FILE = PriceFile("prices.yaml", "1", "0" * 64, "USD")
# Up to 1 unit for a token, with up to 16 decimal places.
PRICE = st.integers(0, 10**16).map(lambda digits: Decimal(digits).scaleb(-16))
SMALL_PRICE = st.integers(0, 10**6).map(lambda digits: Decimal(digits).scaleb(-13))
PRICES = st.fixed_dictionaries(
    {"input": PRICE | SMALL_PRICE, "output": PRICE | SMALL_PRICE},
    optional=dict.fromkeys(KINDS[2:], PRICE | SMALL_PRICE),
)
COUNT = st.integers(0, 2_000)


@st.composite
def usages(draw):
    cached, written, fresh = draw(COUNT), draw(COUNT), draw(COUNT)
    reasoning, visible = draw(COUNT), draw(COUNT)
    return Usage(
        cached + written + fresh,
        reasoning + visible,
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        cache_write_1h_tokens=draw(st.integers(0, written)),
    )


def price(*tiers):
    lists = [Tier(above, completed(prices)) for above, prices in tiers]
    return ModelPrice("m", FILE, PriceList(lists[0].prices, tuple(lists[1:])))


def rational(usage, prices):
    """Return the exact cost, written out: every part costs its price, or that of its whole."""
    of = {kind: Fraction(amount) for kind, amount in prices.items()}
    written = of.get("cache_write", of["input"])
    hour = usage.cache_write_1h_tokens
    fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    return (
        of["input"] * fresh
        + of.get("cached_input", of["input"]) * usage.cached_tokens
        + written * (usage.cache_write_tokens - hour)
        + of.get("cache_write_1h", written) * hour
        + of["output"] * (usage.output_tokens - usage.reasoning_tokens)
        + of.get("reasoning", of["output"]) * usage.reasoning_tokens
    )


@given(prices=PRICES, requests=st.lists(usages(), max_size=4))
def test_a_cost_is_never_below_the_exact_one_and_above_it_by_less_than_a_billionth(
    prices, requests
):
    cost = Fraction(price((0, prices)).cost(*requests).amount)
    exact = sum((rational(usage, prices) for usage in requests), Fraction(0))
    assert exact <= cost < exact + BILLIONTH
    assert cost % BILLIONTH == 0


@given(prices=PRICES, usage=usages(), more=usages())
def test_more_tokens_never_cost_less(prices, usage, more):
    of = price((0, prices))
    assert of.cost(usage).amount <= of.cost(usage + more).amount
    assert of.cost(usage + more).amount <= of.cost(usage).amount + of.cost(more).amount


@given(
    usual=PRICES,
    tiers=st.lists(st.tuples(st.integers(0, 6_000), PRICES), unique_by=lambda tier: tier[0]),
    usage=usages(),
)
def test_the_highest_tier_that_is_exceeded_prices_the_whole_request(usual, tiers, usage):
    in_order = sorted(tiers, key=lambda tier: tier[0])
    exceeded = [prices for above, prices in in_order if usage.input_tokens > above]
    expected = rational(usage, exceeded[-1] if exceeded else usual)
    cost = Fraction(price((0, usual), *in_order).cost(usage).amount)
    assert expected <= cost < expected + BILLIONTH
