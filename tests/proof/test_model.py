"""The small model: nothing breaks its rules, and a protocol without a guard does."""

import pytest

from proof.model import world
from proof.model.delivery import Heard, WriteIds
from proof.model.explore import Bounds, Explorer
from proof.model.search import Broken

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
