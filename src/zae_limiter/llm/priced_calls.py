"""The price of one call, and the budget among the limits in force that pays for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.llm.usage import get
from zae_limiter.naming import check_limit_name, check_resource

if TYPE_CHECKING:
    from zae_limiter.llm.prices import ModelPrice, Prices
    from zae_limiter.llm.records import CallRecord
    from zae_limiter.models.limit import Limit


def price_of(prices: Prices | ModelPrice, request: Any, resource: str) -> ModelPrice:
    """Return the price of a call: that of the model of its request, or else of the resource."""
    from zae_limiter.llm.prices import ModelPrice, Prices

    if isinstance(prices, ModelPrice):
        return prices
    if not isinstance(prices, Prices):
        raise ValidationError(
            "prices", prices, 'must be prices, such as llm.Prices.load("prices.yaml")'
        )
    model = get(request, "model", "modelId")
    return prices.of(model if isinstance(model, str) else resource)


def check_budget(budget: str | None, record: CallRecord) -> str | None:
    """Return the name of the budget that a caller asks for; None if there is none."""
    if budget is None:
        return None
    if record.price is None:
        raise ValidationError("budget", budget, "needs prices= to charge a cost to it")
    if budget in record.meter:
        raise ValidationError("budget", budget, "is in the meter, too: take it out there")
    return check_limit_name(budget, "budget")


def check_budget_resource(
    budget_resource: str | None, resource: str, record: CallRecord
) -> str | None:
    """Return the further resource that has the budget; None if it is that of the call."""
    if budget_resource is None:
        return None
    if record.price is None:
        raise ValidationError("budget_resource", budget_resource, "needs prices= to charge a cost")
    checked = check_resource(budget_resource, "budget_resource")
    return None if checked == resource else checked


def budget_among(limits: Iterable[Limit], currency: str, wanted: str | None, resource: str) -> str:
    """Return the name of the limit that pays: the wanted one, or the budget in the currency.

    Of several budgets in the currency, the one that has the currency's name pays.
    """
    currencies = {limit.name: limit.currency for limit in limits}
    budgets = sorted(name for name, unit in currencies.items() if unit == currency)
    if wanted is not None:
        if wanted not in budgets:
            raise ValidationError("budget", wanted, _unfit(wanted, currencies, currency, resource))
        return wanted
    if not budgets:
        raise ValidationError(
            "prices",
            currency,
            f"have no budget to charge: no limit of {resource!r} is a budget in {currency}; add "
            f'one, such as Limit.budget("{currency.lower()}", "100.00", currency="{currency}", '
            'per="month"), or leave out prices=',
        )
    if len(budgets) > 1 and currency.lower() not in budgets:
        raise ValidationError(
            "budget", None, f"is needed: {', '.join(budgets)} of {resource!r} are in {currency}"
        )
    return budgets[0] if len(budgets) == 1 else currency.lower()


def _unfit(wanted: str, currencies: dict[str, str | None], currency: str, resource: str) -> str:
    if wanted not in currencies:
        return f"is not a limit of {resource!r}; its limits are {', '.join(sorted(currencies))}"
    unit = currencies[wanted]
    if unit is None:
        return "is not a budget: make it with Limit.budget"
    return f"is in {unit}, but the prices are in {currency}"
