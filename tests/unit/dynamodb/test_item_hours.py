"""The hours in a bucket item: what runs, what is finished, and how it is cleared."""

import pytest

from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.bucket import counted_hours
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.usage import hours

KEY = Key("ns/BUCKET#user#api#2", "#STATE")


FINISHED = HourUsage(9, {"rpm": 4100}, 7, {"rpm": 300}, Tally(1))


def turned_item():
    return {
        **KEY.attributes,
        "o": s("2.abc"),
        "h": n(11),
        "t_rpm": n(0),
        "t_rpm~0123": n(0),
        "t_tpm": n(0),
        "p_rpm": s("10:10:60:0"),
        "p_rpm~0123": s("5:5:60:3"),
        "p_tpm": s("100:100:60:1"),
        "c_rpm": n(9000),
        "c_rpm~0123": n(500),
        "c_tpm": n(-2000),
        "b0": n(4000),
        "k0": n(1000),
        "ac": n(5),
        "rj": n(2),
        "ph": n(9),
        "u0": n(4000),
        "u3": n(100),
        "v0": n(300),
        "ua": n(7),
        "ur": n(1),
        "nb": n(99),
    }


def test_the_state_has_the_slots_by_stored_name():
    slots = {"rpm": 0, "rpm~0123": 3, "tpm": 1}
    state = hours.ItemHours("2.abc", 11, FINISHED, slots, has_children=True, used_by_children={0})
    assert hours.decode(turned_item()) == state


def test_an_item_of_another_program_has_no_hours():
    assert counted_hours({**KEY.attributes, "p_rpm": s("10:10:60"), "c_rpm": n(9)}) == []


def test_the_running_hour_is_what_was_consumed_since_it_began():
    running, finished = counted_hours(turned_item())
    used = {"rpm": 5500, "tpm": -2000}
    assert running == HourUsage(11, used, 5, {"rpm": 1000}, Tally(2))
    assert finished == FINISHED


def test_the_finished_hour_leaves_out_limits_that_were_added_later():
    assert hours.decode(turned_item()).finished == FINISHED


def test_an_item_that_was_cleared_has_no_finished_hour():
    item = turned_item()
    for name in hours.finished_attributes(hours.decode(item)):
        item.pop(name, None)
    assert hours.decode(item).finished is None
    assert not {name for name in item if name[0] in "uv"}


def test_clearing_requires_the_origin_and_the_hour():
    action = body_of(hours.clear(KEY, hours.decode(turned_item())))
    assert action["Key"] == KEY.attributes
    names = action["ExpressionAttributeNames"]
    removed = {
        names[each] for each in action["UpdateExpression"].removeprefix("REMOVE ").split(",")
    }
    of_limits = {"u0", "u1", "u3", "v0", "v1", "v3"}
    assert removed == {*of_limits, "ph", "ua", "ue", "ur", "ux", "uf", "uw", "us", "uq"}
    assert action["ConditionExpression"] == "#0=:0 AND #1=:1"
    assert (names["#0"], names["#1"]) == ("o", "ph")
    assert action["ExpressionAttributeValues"] == {":0": s("2.abc"), ":1": n(9)}


def test_origins_differ():
    assert len({hours.new_origin() for _ in range(100)}) == 100


@pytest.mark.parametrize(("running", "is_last"), [(11, False), (23, False), (24, True)])
def test_a_finished_hour_is_the_last_of_its_day_if_another_day_runs(running, is_last):
    assert hours.decode({**turned_item(), "h": n(running)}).closes_day == is_last


@pytest.mark.parametrize("parameters", ["s:10:600:0", "x:1", "slots:3"])
def test_an_unknown_kind_of_limit_is_refused(parameters):
    with pytest.raises(IncompatibleSchemaError):
        hours.decode({**turned_item(), "p_new": s(parameters)})
