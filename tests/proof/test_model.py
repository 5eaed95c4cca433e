"""The small model: nothing breaks its rules, and a protocol without a guard does."""

import pytest

from proof.model import world
from proof.model.explore import Bounds, Broken, Explorer

SMALL = {
    "lost answers": Bounds(1, (1, 1), 2, ("charge", "credit"), 1),
    "changes of limits": Bounds(1, (1, 1), 2, ("charge", "rebase"), 1),
    "splits": Bounds(0, (2, 1), 1, ("charge", "split", "merge"), 0),
}


@pytest.mark.parametrize("name", SMALL)
def test_no_history_breaks_a_rule(name):
    explorer = Explorer(SMALL[name])
    explorer.explore()
    assert explorer.states > 500


class RepeatsWithoutGuard(Explorer):
    """Sends a write again after an error, whoever wrote meanwhile."""

    def repeat(self, state, number, client):
        (part,) = client.message.parts
        again = client._replace(tries=client.tries + 1)
        yield self._send(
            state, number, again, "charge", client.amount, (part,), client.stamp, client.op
        )


class BelievesInItsWrite(Explorer):
    """Takes a write of unknown outcome for a success."""

    def look(self, state, number, client):
        yield "hopes", self.granted(state, number, client)


@pytest.mark.parametrize(
    ("defect", "rule"),
    [(RepeatsWithoutGuard, "twice"), (BelievesInItsWrite, "not carried out")],
)
def test_a_client_without_a_guard_is_found(defect, rule):
    with pytest.raises(Broken, match=rule):
        defect(Bounds(1, (2, 1), 2, ("charge",), 1)).explore()


class IgnoresShape(Explorer):
    def allows(self, item, part):
        return world.allows(item, part._replace(same_n=item.n))


class IgnoresLimits(Explorer):
    def allows(self, item, part):
        return world.allows(item, part._replace(same_terms=item.terms))


class IgnoresEnough(Explorer):
    def allows(self, item, part):
        return world.allows(item, part._replace(low=None))


class IgnoresOverflow(Explorer):
    def allows(self, item, part):
        return world.allows(item, part._replace(high=None))


@pytest.mark.parametrize(
    ("defect", "bounds"),
    [
        (IgnoresShape, Bounds(0, (3, 1), 1, ("charge", "split"), 0)),
        (IgnoresLimits, Bounds(1, (2, 2), 1, ("charge", "rebase"), 0)),
        (IgnoresEnough, Bounds(0, (2, 1), 1, ("charge",), 0)),
        (IgnoresOverflow, Bounds(2, (2, 2), 1, ("charge",), 0)),
    ],
)
def test_a_store_that_ignores_a_bound_is_found(defect, bounds):
    with pytest.raises(Broken):
        defect(bounds).explore()
