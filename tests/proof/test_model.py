"""The small models: nothing breaks their rules, and a protocol without a guard does."""

import pytest

from proof.model import holds, quota, world
from proof.model.delivery import Heard, WriteIds
from proof.model.explore import Bounds, Explorer
from proof.model.search import Broken
from zae_limiter.admission.windows import end_ms, window_of

CHARGE, REFUND = ("charge",), ("charge", "credit")

SMALL = {
    "lost answers": Bounds(1, (1, 1), 2, REFUND, losses=1),
    "changes of limits": Bounds(1, (1, 1), 2, (*CHARGE, "rebase"), losses=1),
    "splits": Bounds(0, (2, 1), 1, (*CHARGE, "split", "merge"), losses=0),
    "requests delivered twice": Bounds(0, (2, 1), 2, REFUND, losses=0, copies=1),
    "answers lost, and requests delivered twice": Bounds(0, (1, 1), 2, REFUND, losses=1, copies=1),
}


@pytest.mark.parametrize("name", SMALL)
def test_no_history_breaks_a_rule(name):
    explorer = Explorer(SMALL[name])
    explorer.explore()
    assert explorer.states > 500


def test_four_other_writes_between_two_deliveries_are_beyond_the_protocol():
    with pytest.raises(Broken, match="twice"):
        Explorer(Bounds(0, (3, 2), 1, REFUND, losses=0, copies=1)).explore()


# --- items that show their last write only


class ShowsLastIdOnly(Explorer):
    """The former protocol: an item has the id of its last write, and not those before it."""

    def allows(self, item, part, op):
        return world.allows(item._replace(ids=WriteIds(item.ids.last)), part, op)

    def shows(self, state, message):
        return shows_last(state, message)


class ChecksLastIdOnly(Explorer):
    """A store that looks at the last id only; its clients look at all of them."""

    def allows(self, item, part, op):
        return world.allows(item._replace(ids=WriteIds(item.ids.last)), part, op)


class ChecksLastIdOfRefunds(Explorer):
    """A store that looks at the last id only if the write gives something back."""

    def allows(self, item, part, op):
        if part.consumed < 0:
            item = item._replace(ids=WriteIds(item.ids.last))
        return world.allows(item, part, op)


class LooksAtLastIdOnly(Explorer):
    """A client that looks at the last id only; the store looks at all of them."""

    def shows(self, state, message):
        return shows_last(state, message)


class BelievesRefusals(Explorer):
    """A client that is refused does not look whether the item shows its write."""

    def shows(self, state, message):
        return False


def shows_last(state, message):
    item = state.items[message.parts[0].number]
    return item is not None and item.ids.last == message.op


TWICE = Bounds(0, (2, 1), 2, REFUND, losses=0, copies=1)


@pytest.mark.parametrize(
    ("defect", "rule"),
    [
        (ChecksLastIdOnly, "a charge was carried out twice"),
        (ChecksLastIdOfRefunds, "a refund was credited twice"),
        (LooksAtLastIdOnly, "asked again for what was carried out"),
        (BelievesRefusals, "asked again for what was carried out"),
    ],
)
def test_a_protocol_that_forgets_earlier_writes_is_found(defect, rule):
    with pytest.raises(Broken, match=rule):
        defect(TWICE).explore()


def test_the_former_protocol_is_found_if_an_original_comes_late():
    with pytest.raises(Broken, match="a charge was carried out twice"):
        ShowsLastIdOnly(Bounds(0, (2, 1), 2, REFUND, losses=1)).explore()


# --- clients without a guard


class RepeatsAfterErrorsOnly(ShowsLastIdOnly):
    """The former protocol, in which an original that comes late is never repeated."""

    def repeat(self, state, number, client):
        if client.phase == Heard.ERROR.value:
            yield from super().repeat(state, number, client)
        else:
            yield "gives up", self.given_up(state, number, client)


class RepeatsWithoutGuard(RepeatsAfterErrorsOnly):
    """Sends a write again after an error, whoever wrote meanwhile."""

    def repeat(self, state, number, client):
        again = client._replace(tries=client.tries + 1)
        yield self._send(state, again, client.message)


class BelievesInItsWrite(Explorer):
    """Takes a write of unknown outcome for a success."""

    def resolve(self, state, number, client):
        yield "hopes", self.finished(state, number, client)


def test_a_guard_is_enough_where_an_item_shows_its_last_write_only():
    RepeatsAfterErrorsOnly(Bounds(0, (2, 1), 2, REFUND, losses=1)).explore()


@pytest.mark.parametrize(
    ("defect", "rule"),
    [(RepeatsWithoutGuard, "twice"), (BelievesInItsWrite, "not carried out")],
)
def test_a_client_without_a_guard_is_found(defect, rule):
    with pytest.raises(Broken, match=rule):
        defect(Bounds(0, (2, 1), 2, REFUND, losses=1)).explore()


# --- stores that ignore a bound


class IgnoresShape(Explorer):
    def allows(self, item, part, op):
        return world.allows(item, part._replace(same_n=None), op)


class IgnoresLimits(Explorer):
    def allows(self, item, part, op):
        return world.allows(item, part._replace(same_terms=None), op)


class IgnoresEnough(Explorer):
    def allows(self, item, part, op):
        return world.allows(item, part._replace(low=None), op)


class IgnoresOverflow(Explorer):
    def allows(self, item, part, op):
        return world.allows(item, part._replace(high=None), op)


@pytest.mark.parametrize(
    ("defect", "bounds"),
    [
        (IgnoresShape, Bounds(0, (3, 1), 1, (*CHARGE, "split"), losses=0)),
        (IgnoresLimits, Bounds(1, (2, 2), 1, (*CHARGE, "rebase"), losses=0)),
        (IgnoresEnough, Bounds(0, (2, 1), 1, CHARGE, losses=0)),
        (IgnoresOverflow, Bounds(2, (2, 2), 1, CHARGE, losses=0)),
    ],
)
def test_a_store_that_ignores_a_bound_is_found(defect, bounds):
    with pytest.raises(Broken):
        defect(bounds).explore()


# --- holds

SMALL_HOLDS = {
    "holds expire": holds.Bounds(3, operations=(2, 2), costs=(1,)),
    "the window ends": holds.Bounds(3, 2, (2, 2), costs=(0, 3)),
    "calls end and begin in one write": holds.Bounds(3, 2, (2, 1), groups=True),
    "answers are lost": holds.Bounds(3, 2, (2, 1), costs=(1,), losses=1),
    "renewals are lost": holds.Bounds(2, 9, (4, 1), 1, costs=(1,), losses=1),
    "requests are delivered twice": holds.Bounds(2, 9, (2, 1), costs=(1,), copies=1),
}


@pytest.mark.parametrize("name", SMALL_HOLDS)
def test_no_history_of_holds_breaks_a_rule(name):
    explorer = holds.Explorer(SMALL_HOLDS[name])
    explorer.explore()
    assert explorer.states > 500


class HasNoBound(holds.Explorer):
    """A renewal of unknown outcome is not granted the amount by which it may be exceeded."""

    def unknown(self, state, number, client):
        return super().unknown(state, number, client)._replace(in_doubt=0)


def test_a_renewal_of_unknown_outcome_may_admit_an_estimate_more():
    with pytest.raises(Broken, match="more was admitted"):
        HasNoBound(SMALL_HOLDS["renewals are lost"]).explore()


# --- holds: stores that do not check a condition


class AdmitsMore(holds.Explorer):
    """A charge does not look at the level that is stored."""

    def allows(self, item, write, op):
        if write.taken is not None and write.put is None:
            write = write._replace(low=None)
        return quota.allows(item, write, op)


class TurnsTwice(holds.Explorer):
    """A turn does not look whether another client has begun the window."""

    def allows(self, item, write, op):
        if write.put is not None:
            write = write._replace(low=None)
        return quota.allows(item, write, op)


class ChargesOverTheEdge(holds.Explorer):
    """A charge does not look whether another client has begun the next window."""

    def allows(self, item, write, op):
        is_plain = write.taken is not None and write.put is None
        if is_plain and write.taken.window != window_of(item.balance):
            write = write._replace(low=None, high=None)
        return quota.allows(item, write, op)


class UnboundSettlements(holds.Explorer):
    """A settlement does not look at the window of the balance."""

    def allows(self, item, write, op):
        if write.taken is None:
            write = write._replace(low=None, high=None)
        return quota.allows(item, write, op)


class EndsWithoutHold(holds.Explorer):
    """A settlement or a renewal does not look whether its hold was returned."""

    def allows(self, item, write, op):
        return quota.allows(item, write._replace(removed=()), op)


class SweepsTwice(holds.Explorer):
    """A sweep does not look whether the holds are as they were seen."""

    def allows(self, item, write, op):
        return quota.allows(item, write._replace(swept=()), op)


class ChecksLastIdOfHolds(holds.Explorer):
    """The store looks at the last id only."""

    def allows(self, item, write, op):
        return quota.allows(item._replace(ids=WriteIds(item.ids.last)), write, op)


# --- holds: clients that do not follow the protocol


class CreditsLateRefunds(holds.Explorer):
    """A settlement changes the balance of the window that it finds."""

    def planned(self, item, wish, now_ms, *, is_fresh):
        step = super().planned(item, wish, now_ms, is_fresh=is_fresh)
        if isinstance(step, quota.Write) and wish.cost is not None and not wish.charge:
            step = step._replace(low=None, high=None, add=wish.held.hold.units - wish.cost)
        return step


class DropsRefundsByItsClock(holds.Explorer):
    """The client decides by its own clock that the window of a call is over."""

    def planned(self, item, wish, now_ms, *, is_fresh):
        step = super().planned(item, wish, now_ms, is_fresh=is_fresh)
        if not isinstance(step, quota.Write) or wish.cost is None or wish.charge:
            return step
        is_over = now_ms >= end_ms(quota.WINDOW, wish.held.hold.window)
        return step._replace(low=None, high=None, add=0) if is_over else step


class SubtractsSweptHolds(holds.Explorer):
    """A settlement subtracts its estimate from the use, although the hold was returned."""

    def planned(self, item, wish, now_ms, *, is_fresh):
        step = super().planned(item, wish, now_ms, is_fresh=is_fresh)
        if isinstance(step, quota.Write) and wish.cost is not None and not step.removed:
            step = step._replace(usage=wish.cost - wish.held.hold.units)
        return step


class ForgetsRenewals(holds.Explorer):
    """The end of a call names the hold that it had when the call was admitted."""

    def finished(self, state, number, client, said):
        wish = client.message.wish
        for step, after in super().finished(state, number, client, said):
            now = after.clients[number]
            if wish.held is not None and wish.cost is None:
                now = now._replace(held=wish.held)
            yield step, holds.with_client(after, number, now)


class SettlesAgain(holds.Explorer):
    """A settlement without an answer is sent once more, under another id."""

    def unknown(self, state, number, client):
        after = super().unknown(state, number, client)
        if client.message.wish.cost is None:
            return after
        now = after.clients[number]._replace(held=client.message.wish.held)
        return holds.with_client(after, number, now)


class BelievesInItsCharge(holds.Explorer):
    """Takes a write of unknown outcome for a success."""

    def resolve(self, state, number, client):
        yield from self.finished(state, number, client, "hopes")


class LooksAtLastIdOfHolds(holds.Explorer):
    """A client that is refused looks at the last id only."""

    def shows(self, state, message):
        return state.item.ids.last == message.op


EXPIRY = holds.Bounds(3, operations=(2, 2), costs=(1,))
EDGE = holds.Bounds(3, 2, (2, 2))
LOST = holds.Bounds(1, operations=(3, 1), tries=1, losses=1)
COPIED = holds.Bounds(1, operations=(2, 2), copies=1)


@pytest.mark.parametrize(
    ("defect", "bounds", "rule"),
    [
        (AdmitsMore, EXPIRY, "more was admitted"),
        (TurnsTwice, EDGE, "more was admitted"),
        (ChargesOverTheEdge, EDGE, "in another window"),
        (UnboundSettlements, EDGE, "lost, or credited twice"),
        (EndsWithoutHold, EXPIRY, "more was given back than was held"),
        (SweepsTwice, EXPIRY, "lost, or credited twice"),
        (ChecksLastIdOfHolds, COPIED, "twice"),
        (CreditsLateRefunds, EDGE, "lost, or credited twice"),
        (DropsRefundsByItsClock, EDGE, "lost, or credited twice"),
        (SubtractsSweptHolds, EXPIRY, "the counted use is wrong"),
        (ForgetsRenewals, holds.Bounds(1, operations=(3, 1)), "what the calls hold"),
        (SettlesAgain, LOST, "a call was settled twice"),
        (BelievesInItsCharge, LOST, "a write that was not made"),
        (LooksAtLastIdOfHolds, COPIED, "asked again for what was carried out"),
    ],
)
def test_a_protocol_of_holds_that_lacks_a_guard_is_found(defect, bounds, rule):
    with pytest.raises(Broken, match=rule):
        defect(bounds).explore()
