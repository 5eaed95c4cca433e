"""A write that returns or settles held amounts requires that they are there."""

from zae_limiter.admission.quotas import HoldWrite
from zae_limiter.admission.windows import HoldName
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket_updates import write_holds
from zae_limiter.items.stored.update import ItemUpdate

KEY = keys.bucket("ns", "user", "api")
SWEPT, SETTLED = HoldName(5, 60), HoldName(5, 90)


def rendered(write):
    """Return condition and update of a write, with names and values in place."""
    update = ItemUpdate(KEY)
    write_holds(update, [write], {"tokens": 2})
    action = body_of(update)
    texts = {**action["ExpressionAttributeNames"]}
    texts |= {name: value["N"] for name, value in action["ExpressionAttributeValues"].items()}
    condition, change = action["ConditionExpression"], action["UpdateExpression"]
    for name in sorted(texts, key=len, reverse=True):
        condition, change = (text.replace(name, texts[name]) for text in (condition, change))
    return condition, change


def test_returned_holds_must_be_as_they_were_seen():
    condition, change = rendered(HoldWrite("tokens", swept={SWEPT: 7}))
    assert condition == f"{stored.hold_attribute(2, SWEPT)}=7"
    assert change == f"REMOVE {stored.hold_attribute(2, SWEPT)}"


def test_a_settled_hold_must_still_be_held():
    condition, change = rendered(HoldWrite("tokens", removed={SETTLED: 3}))
    assert condition == f"{stored.hold_attribute(2, SETTLED)}>=3"
    assert change == f"ADD {stored.hold_attribute(2, SETTLED)} -3"


def test_a_hold_that_is_returned_and_taken_again_is_set():
    condition, change = rendered(HoldWrite("tokens", swept={SWEPT: 7}, put={SWEPT: 4}))
    assert condition == f"{stored.hold_attribute(2, SWEPT)}=7"
    assert change == f"SET {stored.hold_attribute(2, SWEPT)}=4"
