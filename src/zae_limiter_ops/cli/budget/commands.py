"""``zae-limiter budget``: the budgets of entities, and how long they last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.errors import LIMITED
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.listing import end_json, print_next_page, stream_json, stream_table
from zae_limiter_ops.cli.shared.namespace_pages import all_namespaces_option, open_namespaces
from zae_limiter_ops.cli.shared.options import entity_filter, page_options, resource_filter
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.listing import Pages
    from zae_limiter_ops.cli.shared.namespace_pages import InNamespace, Namespaces
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.views.budgets import Budget

    Listed = Pages[InNamespace[list[Budget]]]


@click.group(cls=CommandGroup)
def budget() -> None:
    """Show budgets: the spending, the rest, and how long it lasts.

    \b
    Example:
      zae-limiter budget list
    """


@budget.command("list")
@resource_filter("Only budgets on this resource.")
@entity_filter("Only budgets of this entity.")
@page_options("buckets with budgets", "bucket", "CURSOR")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if a listed budget is spent.")
@all_namespaces_option
@store_options
@click.option(
    "--output",
    type=click.Choice(("table", "json", "csv")),
    default="table",
    show_default=True,
    help="Output format: a table for people, JSON and CSV for programs.",
)
def list_budgets(
    store: StoreLocation,
    resource: str | None,
    entity_id: str | None,
    limit: int,
    list_all: bool,
    cursor: str | None,
    exit_code: bool,
    all_namespaces: bool,
    output: str,
) -> None:
    """List budgets with their spending, and the day on which each is spent.

    Used is the cost of ended calls in the running window, held the estimates of calls in flight,
    and left the rest. The bar burns down as the budget is used; the column window shows which part
    of the window is over. Per day is the average spending in this window, held amounts included. At
    this rate the budget is spent on the day in the last column, in the time zone of the budget, or
    lasts until the next window. A budget that is not listed has not been charged: it is unspent.

    \b
    Examples:
      zae-limiter budget list
      zae-limiter budget list --entity key-7 --output json
      zae-limiter budget list --all --output csv > budgets.csv
      zae-limiter budget list --all-namespaces --exit-code

    JSON: budgets (each: namespace, entity_id, resource, limit_name, from_call (the limit was passed
    by calls), used (this and other money as text), held, left, amount, currency, limit (its
    notation), left_pct, elapsed_pct, per_day, window_start, window_end, spent, spent_at (null: it
    lasts until the next window)), next_cursor (null at the end).
    """
    from zae_limiter_ops.cli.budget.pages import BudgetPages

    with open_namespaces(store, all_namespaces) as namespaces:
        source = BudgetPages(entity_id, resource)
        pages = namespaces.pages(source.of_namespace, None if list_all else limit, cursor)
        has_spent = _print(pages, namespaces, output)
        if not pages.record_count and cursor is None:
            print_hint(output, "no budget was charged; set one: -l usd:250USD/month@UTC")
            namespaces.hint(output, source.first_page)
    if exit_code and has_spent:
        click.get_current_context().exit(LIMITED)


def _print(pages: Listed, namespaces: Namespaces, output: str) -> bool:
    """Print all pages; return whether one of the budgets is spent."""
    from zae_limiter_ops.cli.budget.columns import STYLES, budget_columns
    from zae_limiter_ops.cli.shared.records import print_csv
    from zae_limiter_ops.views.columns import json_of

    columns = budget_columns(namespaces)
    has_spent = False

    def budgets(found: InNamespace[list[Budget]]) -> list[Budget]:
        nonlocal has_spent
        has_spent = has_spent or any(each.is_spent for each in found.item)
        return found.item

    if output == "json":
        rows = ([each for found in page for each in budgets(found)] for page in pages)
        stream_json("budgets", rows, lambda each: json_of(columns, each))
        end_json(next_cursor=pages.next_cursor)
    elif output == "csv":
        print_csv(columns, (each for page in pages for found in page for each in budgets(found)))
        print_next_page(output, pages)
    else:
        stream_table(columns, pages, budgets, styles=STYLES)
        print_next_page(output, pages)
    return has_spent
