"""A write means the same in Python and as an expression of DynamoDB."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.dynamodb.model.table import ModelTable, Refusal
from zae_limiter.dynamodb import expressions
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import (
    ABSENT,
    AT_LEAST,
    AT_MOST,
    DIFFERS,
    EQUAL,
    LESS_THAN,
    MORE_THAN,
    NO_ITEM,
    ItemCheck,
    ItemDelete,
    ItemPut,
    ItemUpdate,
    after,
    holds,
)

KEY = Key("p", "s")
NUMBERS, TEXTS = ("a", "b", "c.d", "%s"), ("t", "ü")
numbers = st.sampled_from(NUMBERS)
small = st.integers(-2, 2)
words = st.sampled_from(["", "x", 'y"', "%s", "ü"])
items = st.none() | st.builds(
    lambda counted, said: {**KEY.attributes, **counted, **said},
    st.dictionaries(numbers, small.map(n)),
    st.dictionaries(st.sampled_from(TEXTS), words.map(s)),
)


@st.composite
def terms(draw, write):
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return (ABSENT, draw(st.sampled_from(NUMBERS + TEXTS)))
    if kind == 1:
        return (NO_ITEM,)
    if kind == 2:
        sign = draw(st.sampled_from([EQUAL, DIFFERS, LESS_THAN]))
        return write.term(sign, draw(st.sampled_from(TEXTS)), draw(words))
    sign = draw(st.sampled_from([EQUAL, DIFFERS, LESS_THAN, MORE_THAN, AT_LEAST, AT_MOST]))
    return write.term(sign, draw(numbers), draw(small))


def require_some(draw, write):
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            write.clauses.append(draw(terms(write)))
        else:
            alternatives = [
                [draw(terms(write)) for _ in range(draw(st.integers(1, 2)))] for _ in range(2)
            ]
            write.any_of(*alternatives)
    if draw(st.integers(0, 9)) == 0:
        write.any_item()
    if draw(st.integers(0, 4)) == 0:
        write.present(draw(numbers))


@st.composite
def updates(draw):
    update = ItemUpdate(KEY, is_usual=draw(st.booleans()))
    changed = draw(st.lists(numbers, unique=True, min_size=1, max_size=4))
    for name in changed:
        place = update.open_name(name) if draw(st.integers(0, 5)) == 0 else name
        kind = draw(st.integers(0, 6))
        source, other = draw(numbers), draw(numbers)
        if kind == 0:
            update.set(place, draw(small))
        elif kind == 1:
            update.set_if_absent(place, draw(small))
        elif kind == 2:
            update.add(place, draw(small))
        elif kind == 3:
            update.remove(place)
        elif kind == 4:
            update.copy(place, source, update.give(draw(small)) if draw(st.booleans()) else None)
        elif kind == 5:
            update.subtract(place, source, other, update.give(draw(small)))
        else:
            update.sum(place, source, other, update.give(draw(small)))
    if draw(st.booleans()):
        update.set("t", draw(words))
    require_some(draw, update)
    return update


@st.composite
def writes(draw):
    """Writes of whole items, in the three kinds that are not updates."""
    item = {**KEY.attributes, **draw(st.dictionaries(numbers, small.map(n)))}
    write = draw(st.sampled_from([ItemPut(item), ItemDelete(KEY), ItemCheck(KEY)]))
    write = ItemPut(item) if isinstance(write, ItemPut) else type(write)(KEY)
    require_some(draw, write)
    if isinstance(write, ItemCheck) and not write.clauses:
        write.any_item()
    return write


def table_with(item):
    table = ModelTable()
    if item is not None:
        table.call("PutItem", {"Item": item}, 0)
    return table


@given(updates(), items)
def test_an_update_means_what_its_expression_means(update, item):
    table = table_with(item)
    body = json.loads(expressions.text(update, "table", "ALL_NEW"))
    if not holds(update, item):
        with pytest.raises(Refusal) as refusal:
            table.call("UpdateItem", body, 0)
        assert refusal.value.content.get("item") == item
        return
    try:
        expected = after(update, item)
    except KeyError:  # a source that is not there
        with pytest.raises(Refusal, match="Validation"):
            table.call("UpdateItem", body, 0)
        return
    assert table.call("UpdateItem", body, 0) == {"Attributes": expected}


@given(writes(), items)
def test_a_write_in_a_group_means_what_its_action_means(write, item):
    table, body = table_with(item), {"TransactItems": [expressions.action(write, "table")]}
    if holds(write, item):
        table.call("TransactWriteItems", body, 0)
        assert table.item(*KEY) == after(write, item)
    else:
        with pytest.raises(Refusal):
            table.call("TransactWriteItems", body, 0)
        assert table.item(*KEY) == item
