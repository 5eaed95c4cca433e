"""Debts, credits, resets, top-ups and pauses: writes that are never rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    full_balance,
    is_same_kind,
    is_slots,
)
from zae_limiter.admission.in_force import check_money, is_alias, plain_name, stored_units
from zae_limiter.admission.moves import Move, reset_move, top_up_move
from zae_limiter.admission.quotas import (
    QuotaLedger,
    QuotaMove,
    has_same_windows,
    reset_quota,
    top_up_quota,
)
from zae_limiter.admission.rebase import full_bucket, full_limit
from zae_limiter.admission.request import Renewal, Settlement
from zae_limiter.admission.slots import SlotHold, SlotLedger
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import with_through_child, with_units_through_children
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import no_budget
from zae_limiter.models.timestamps import MILLI


def settle(image: BucketImage | None, settlement: Settlement, now_ms: int) -> BucketImage | None:
    """Return the bucket after its debts and credits; None if it is absent and gets only credits."""
    in_force, amounts = settlement.in_force, settlement.amounts_milli
    is_absent = False
    if image is None:
        if all(amount <= 0 for amount in amounts.values()):
            return None
        image = full_bucket(in_force, now_ms)
        is_absent = True
    if settlement.released:
        image = _with_released(image, settlement.released, now_ms)
    limits, through = dict(image.limits), image.through_children
    if settlement.quotas:
        of_quotas = _settle_quotas(limits, settlement, now_ms, image, is_absent=is_absent)
        if of_quotas:
            through = with_units_through_children(through, of_quotas)
    for key, amount_milli in amounts.items():
        state = limits.get(key) or full_limit(in_force.rate_of(key), now_ms, image.writes)
        limits[key] = _shift(state, amount_milli, now_ms, settlement.forfeits)
    if settlement.through_child:
        through = with_through_child(through, amounts, settlement.through_child)
    return image._replace(
        limits=limits,
        expires_ms=in_force.extended_ttl(image.expires_ms, now_ms),
        admitted=image.admitted + settlement.admitted,
        writes=image.writes + 1,
        through_children=through,
        tally=_counted(image.tally, settlement.elsewhere),
    )


def divided(image: BucketImage, settlement: Settlement) -> tuple[Settlement, dict[str, int]]:
    """Return the part of a settlement that changes the bucket, and what only counts as usage.

    That is the part of limits that have become another kind since they were charged.
    """
    rate_of, limits, late = settlement.in_force.rate_of, image.limits, dict[str, int]()
    for key, units in settlement.amounts_milli.items():
        if key in limits and not is_same_kind(limits[key].rate, rate_of(key)):
            late[key] = units
    for each in settlement.quotas:
        key = each.hold.key
        if key in limits and not is_same_kind(limits[key].rate, rate_of(key)):
            late[key] = late.get(key, 0) + each.late_usage
    if not late:
        return settlement, late
    amounts = {key: each for key, each in settlement.amounts_milli.items() if key not in late}
    quotas = tuple([each for each in settlement.quotas if each.hold.key not in late])
    return settlement._replace(amounts_milli=amounts, quotas=quotas), late


def _counted(tally: Tally, elsewhere: int) -> Tally:
    return tally.plus(Tally(elsewhere=elsewhere)) if elsewhere else tally


def _settle_quotas(
    limits: dict[str, LimitState],
    settlement: Settlement,
    now_ms: int,
    image: BucketImage,
    *,
    is_absent: bool,
) -> dict[str, int]:
    """Settle the quotas of a charge; return the usage through children, by stored name.

    If the bucket was deleted meanwhile, only usage changes.
    """
    through: dict[str, int] = {}
    for each in settlement.quotas:
        key, then = each.hold.key, settlement.in_force.rate_of(each.hold.key)
        state = limits.get(key) or full_limit(then, now_ms, image.writes)
        if is_absent:
            of_children = each.late_usage if each.hold.through_child else 0
            limits[key] = replace(state, consumed_milli=state.consumed_milli + each.late_usage)
        else:
            ledger = QuotaLedger(key, state, now_ms, charges=False, life=image.life)
            ledger.settle(each, is_same=has_same_windows(state.rate, then))
            planned = ledger.finish(asked=False)
            of_children = planned.through_children
            limits[key] = planned.applied(state)
        if of_children:
            through[key] = through.get(key, 0) + of_children
    return through


def _with_released(image: BucketImage, released: Iterable[SlotHold], now_ms: int) -> BucketImage:
    ledger = SlotLedger(image, now_ms)
    for hold in released:
        ledger.release(hold)
    return ledger.applied()


def renew(
    image: BucketImage | None, renewal: Renewal, now_ms: int
) -> tuple[BucketImage | None, tuple[int | None, ...]]:
    """Return the bucket after a renewal, and the new expiry of each hold.

    The expiry is None for a hold that had expired before the renewal.
    """
    moments: list[int | None] = []
    if image is None:
        return None, (None,) * (len(renewal.holds) + len(renewal.quota_holds))
    after = image
    if renewal.holds:
        ledger = SlotLedger(image, now_ms)
        moments += [ledger.renew(hold) for hold in renewal.holds]
        after = ledger.applied()
    if renewal.quota_holds:
        limits = dict(after.limits)
        moments += _renewed_quotas(limits, renewal, now_ms, image.life)
        after = after._replace(limits=limits)
    expires_ms = renewal.in_force.extended_ttl(image.expires_ms, now_ms)
    return after._replace(expires_ms=expires_ms, writes=image.writes + 1), tuple(moments)


def _renewed_quotas(
    limits: dict[str, LimitState], renewal: Renewal, now_ms: int, life: str
) -> list[int | None]:
    """Move held amounts to a later expiry, in seconds; None for those that have expired."""
    moments = []
    for hold in renewal.quota_holds:
        state, moment = limits.get(hold.key), None
        then = renewal.in_force.rate_of(hold.key)
        if state is not None and has_same_windows(state.rate, then):
            ledger = QuotaLedger(hold.key, state, now_ms, charges=False, life=life)
            moment = ledger.renew(hold)
            limits[hold.key] = ledger.finish(asked=False).applied(state)
        moments.append(moment)
    return moments


def _shift(state: LimitState, amount_milli: int, now_ms: int, forfeits: bool) -> LimitState:
    """Take a debt or add a credit. An overflow is cut off before a debt is taken.

    A forfeited credit changes only the count of consumed tokens; the balance stays.
    """
    balance = state.balance_milli
    if forfeits:
        return replace(state, consumed_milli=state.consumed_milli + amount_milli)
    if amount_milli > 0:
        balance = min(balance, full_balance(state.rate, now_ms))
    return replace(
        state,
        balance_milli=balance - amount_milli,
        consumed_milli=state.consumed_milli + amount_milli,
    )


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
    through = with_units_through_children(image.through_children, of_children)
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
