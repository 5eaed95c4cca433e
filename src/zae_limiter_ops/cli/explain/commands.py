"""``zae-limiter explain``: the answer to the next acquire, and its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.errors import FAILED, LIMITED, given_options
from zae_limiter_ops.cli.shared.options import entity_argument, output_option, resource_argument
from zae_limiter_ops.cli.shared.param_types import AmountType, amounts_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result
from zae_limiter_ops.views.advice import did_you_mean

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.views.explanation import Explanation


@click.command()
@entity_argument
@resource_argument
@amounts_option(
    "--consume",
    "-c",
    required=False,
    help="Tokens that the acquire asks for; may be repeated. Default: the largest amounts that "
    "were rejected in this hour or the last, and 1 token of each other limit (of a budget, a "
    "billionth of its currency unit).",
)
@click.option(
    "--also",
    "further",
    type=(str, AmountType()),
    multiple=True,
    metavar="RESOURCE NAME=AMOUNT",
    help="Tokens of a further resource that the same acquire asks for; may be repeated.",
)
@click.option(
    "--also-of",
    "further_of",
    type=(str, str, AmountType()),
    multiple=True,
    metavar="ENTITY RESOURCE NAME=AMOUNT",
    help="The same for a resource of another entity; may be repeated.",
)
@click.option(
    "--exit-code", is_flag=True, help="Exit with 3 if the answer is LIMITED, with 1 if ERROR."
)
@store_options
@output_option
def explain(
    store: StoreLocation,
    entity_id: str,
    resource: str,
    amounts: dict[str, int | str],
    further: tuple[tuple[str, tuple[str, int | str]], ...],
    further_of: tuple[tuple[str, str, tuple[str, int | str]], ...],
    exit_code: bool,
    output: str,
) -> None:
    """Explain whether the next acquire would be admitted. Nothing is charged.

    If the key was rejected in this hour or the last, the limit that refused its last call is named,
    also if it is on a further resource.

    \b
    Examples:
      zae-limiter explain key-7 gpt-4
      zae-limiter explain key-7 gpt-4 -c rpm=1 -c tpm=500
      zae-limiter explain key-7 gpt-4 --exit-code
      zae-limiter explain key-7 gpt-4 -c rpm=1 --also all-models usd=0.25
      zae-limiter explain key-7 gpt-4 -c rpm=1 --also-of team-1 gpt-4 usd=0.25

    The exit code is 1 if an amount is given for a limit that the resource does not have.

    JSON: entity_id, resource, exists, entity_known (created, limited or used), resource_known,
    parent_id, cascade, consume, consume_source (given, rejected: the largest amounts that were
    rejected in this hour or the last, or default: 1 of each limit), also (of further resources,
    each: entity_id, resource, consume), resolution (each: entity_id, resource, source,
    last_used_hour, mode, mode_until, mode_source (null: no mode is set), levels (each: source,
    limits, wins)), answer (admitted, limited or error), retry_after_seconds (null: never),
    limited_by (what refuses the acquire: entity, resource and limit; null: nothing),
    last_limited_by (what refused the last rejected call of this key in this hour or the last),
    last_rejected_at, problem,
    limits (each: entity_id, resource, limit_name, capacity, refill_amount, refill_period_seconds,
    available, requested, exceeded, can_ever_fit, retry_after_seconds, paused_seconds (while the
    bucket is paused), mode, mode_until (unless it is enforce); of quotas also limit (its notation),
    used, held, window_start, window_end, overdrawn; money as text).
    """
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter_ops.cli.explain.report import print_explanation
    from zae_limiter_ops.views.explanation import explain_acquire, explanation_json

    with store.open() as repository:
        limiter = SyncRateLimiter(repository)
        also = _further_amounts(entity_id, further, further_of)
        explanation = explain_acquire(
            limiter, entity_id, resource, amounts, also, given=given_options()
        )
        hints = _hints(repository, explanation, output)
    if output == "json":
        print_result(output, explanation_json(explanation))
    else:
        print_explanation(explanation)
    for hint in hints:
        print_hint(output, hint)
    if explanation.has_wrong_amounts or (exit_code and explanation.answer == "error"):
        click.get_current_context().exit(FAILED)
    if exit_code and explanation.answer == "limited":
        click.get_current_context().exit(LIMITED)


def _further_amounts(
    entity_id: str,
    further: tuple[tuple[str, tuple[str, int | str]], ...],
    further_of: tuple[tuple[str, str, tuple[str, int | str]], ...],
) -> dict[tuple[str, str], dict[str, int | str]]:
    """Return the amounts of further resources, by entity and resource."""
    also: dict[tuple[str, str], dict[str, int | str]] = {}
    own = [(entity_id, resource, amount) for resource, amount in further]
    for owner, resource, (name, amount) in (*own, *further_of):
        amounts = also.setdefault((owner, resource), {})
        if name in amounts:
            raise click.UsageError(f"--also names {name!r} of {resource!r} twice")
        amounts[name] = amount
    return also


def _hints(repository: SyncRepository, explanation: Explanation, output: str) -> list[str]:
    """Name an unknown entity or resource, which may be a typo, with similar names."""
    if output == "json":
        return []
    from zae_limiter_ops.views.names import is_known_resource, similar_entities, similar_resources

    hints = []
    if not explanation.entity_known:
        entity_id = explanation.entity_id
        suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
        hints.append(
            f"{quoted(entity_id)} was never created, has no limits of its own and no buckets"
            f"{suggestion}"
        )
    names = [] if explanation.resource_known else [explanation.resource]
    names += [name for _, name in explanation.also if not is_known_resource(repository, name)]
    for name in names:
        suggestion = did_you_mean(name, similar_resources(repository))
        hints.append(f"resource {name!r} has no limits and no buckets{suggestion}")
    return hints
