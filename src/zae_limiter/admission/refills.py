"""Resets, top-ups and pauses: changes that an operator makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    is_slots,
)
from zae_limiter.admission.in_force import check_money, is_alias, plain_name, stored_units
from zae_limiter.admission.moves import Move, reset_move, top_up_move
from zae_limiter.admission.quotas import (
    QuotaMove,
    reset_quota,
    top_up_quota,
)
from zae_limiter.admission.usage import with_through_children
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import no_budget
from zae_limiter.models.timestamps import MILLI


def reset(image: BucketImage, now_ms: int) -> tuple[BucketImage, list[Move]]:
    """Return the bucket with every limit full, and the moves. Consumption stays counted."""
    moves, quotas = reset_moves(image, now_ms), reset_quotas(image, now_ms)
    after = _moved(image, moves)
    return with_quotas(after, quotas), [*moves, *[each.move for each in quotas]]


def reset_moves(image: BucketImage, now_ms: int) -> list[Move]:
    """Return the moves of a reset. Slots stay held: they become free when their blocks end."""
    return [
        reset_move(key, state, now_ms)
        for key, state in image.limits.items()
        if not is_slots(state.rate) and state.quota is None
    ]


def reset_quotas(image: BucketImage, now_ms: int) -> list[QuotaMove]:
    """Return the changes of a reset; none for a quota without a charge in its current window."""
    planned = [
        reset_quota(key, state, now_ms)
        for key, state in image.limits.items()
        if state.quota is not None
    ]
    return [each for each in planned if each is not None]


def with_quotas(image: BucketImage, planned: Collection[QuotaMove]) -> BucketImage:
    """Return the bucket after the changes of its quotas."""
    limits = dict(image.limits)
    for each in planned:
        limits[each.move.key] = each.applied(limits[each.move.key])
    of_children = {each.move.key: each.through_children for each in planned}
    through = with_through_children(image.through_children, of_children)
    return image._replace(limits=limits, through_children=through)


def top_up(
    image: BucketImage, amounts: Mapping[str, int], now_ms: int
) -> tuple[BucketImage, list[Move]]:
    """Return the bucket with whole tokens added, up to the capacity, and the moves.

    Consumption stays counted.
    """
    check_topped(image.limits, amounts)
    moves = [
        top_up_move(name, image.limits[name], amount * MILLI, now_ms)
        for name, amount in amounts.items()
        if image.limits[name].quota is None
    ]
    quotas = top_up_quotas(image.limits, amounts, now_ms)
    after = with_quotas(_moved(image, moves), quotas)
    return after, [*moves, *[each.move for each in quotas]]


def top_up_quotas(
    limits: Mapping[str, LimitState], amounts: Mapping[str, int], now_ms: int
) -> list[QuotaMove]:
    """Return the changes of a top-up to quotas, whose level may exceed the amount."""
    planned = []
    for name, amount in amounts.items():
        if limits[name].quota is not None:
            units = stored_units(amount, is_money(limits[name]))
            planned.append(top_up_quota(name, limits[name], units, now_ms))
    return planned


def is_money(state: LimitState) -> bool:
    """Tell whether the amounts of a limit are money."""
    return state.rate.terms is not None and state.rate.terms.currency is not None


def paused_until(before_ms: int | None, until_ms: int, now_ms: int) -> int | None:
    """Return the end of a bucket's pause after a new pause was requested; None if it is lifted.

    The later end of two pauses counts, so that clients can pause a bucket without knowing of each
    other. A pause that ends now lifts the one before.
    """
    if until_ms <= now_ms:
        return None
    return until_ms if before_ms is None else max(before_ms, until_ms)


def _moved(image: BucketImage, moves: Iterable[Move]) -> BucketImage:
    limits = dict(image.limits)
    for move in moves:
        state = limits[move.key]
        limits[move.key] = replace(state, balance_milli=move.applied(state.balance_milli))
    return image._replace(limits=limits, writes=image.writes + 1)


def added_milli(moves: Iterable[Move]) -> dict[str, int]:
    """Sum what moves add, by limit, for the audit event of a reset or top-up.

    The sums are millitokens, and billionths of money. A limit that calls brought is listed as
    ``name (of calls)``, apart from the configured limit.
    """
    added: dict[str, int] = {}
    for move in moves:
        name = _listed_name(move.key)
        added[name] = added.get(name, 0) + move.add
    return dict(sorted(added.items()))


def added_details(
    word: str, added: Mapping[str, int], limits: Mapping[str, LimitState]
) -> dict[str, dict[str, int] | dict[str, str]]:
    """Return such sums as audit details: ``word_milli`` of tokens, ``word_money`` of budgets.

    Money is a text in currency units, as everywhere in JSON.
    """
    of_budgets = {_listed_name(key) for key, state in limits.items() if is_money(state)}
    milli = {name: units for name, units in added.items() if name not in of_budgets}
    if len(milli) == len(added):
        return {f"{word}_milli": milli}
    from zae_limiter.models.money import in_currency  # only budgets need it

    money = {name: f"{in_currency(added[name]):f}" for name in added if name in of_budgets}
    return {f"{word}_money": money} | ({f"{word}_milli": milli} if milli else {})


def _listed_name(key: str) -> str:
    return plain_name(key) + (" (of calls)" if is_alias(key) else "")


def check_topped(stored: Mapping[str, LimitState], amounts: Mapping[str, int]) -> None:
    """Raise unless the bucket has all limits that are to be topped up, and none has slots."""
    if money := [name for name in amounts if name in stored and is_money(stored[name])]:
        check_money(amounts, money, "amounts")
    for name in amounts:
        is_whole = type(amounts[name]) is int
        if name in stored and not is_whole and not is_money(stored[name]):
            raise no_budget(f"amounts.{name}", amounts[name])
        if name in stored and is_slots(stored[name].rate):
            raise ValidationError("amounts", name, "has slots, which come back by themselves")
        if name not in stored:
            names = ", ".join(sorted({plain_name(key) for key in stored}))
            raise ValidationError("amounts", name, f"is not a limit of this bucket ({names})")
