"""The text in the columns of SQLite, letter by letter: existing files must stay readable."""

import pytest

from zae_limiter import IncompatibleSchemaError, Limit, OnUnavailable, RateLimiterUnavailable
from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.rebase import full_limit
from zae_limiter.admission.tally import Refusals, Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.admission.windows import SPAN, HoldName, QuotaState
from zae_limiter.embedded.memory.rows import pack_bucket, unpack_bucket
from zae_limiter.embedded.sqlite import rows as stored
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter.refusal import LimitedBy

TALLY = Tally(7, 2, 5, {"rpm": 30}, 3)
IMAGE = BucketImage(
    {
        "rpm": LimitState(-189_388_799_000, Rate(10_000, 20_000, 60_000), 5000, 3000),
        "rpm~0a1b2c3d4e5f6071": LimitState(10**30, Rate(1000, 1000, 1000), -1, 0),
    },
    config_version=7,
    expires_ms=1_767_225_607_000,
    hour=490_896,
    admitted=12,
    admitted_counted=11,
    writes=13,
)
TEXT = (
    '[1,{"rpm":[-189388799000,[10000,20000,60000],5000,3000],'
    '"rpm~0a1b2c3d4e5f6071":[1000000000000000000000000000000,[1000,1000,1000],-1,0]},'
    "7,1767225607000,490896,12,11,13]"
)


def test_a_bucket_reads_back_as_it_was():
    assert stored.encode_bucket(IMAGE) == TEXT
    assert stored.decode_bucket(TEXT) == IMAGE


def test_a_bucket_keeps_its_life_without_slots():
    """Holds of quotas belong to the life, and a bucket with quotas needs no slots."""
    image = IMAGE._replace(life="0a1b2c")
    assert stored.decode_bucket(stored.encode_bucket(image)).life == "0a1b2c"


def test_a_bucket_with_use_through_children_and_rejections():
    image = IMAGE._replace(through_children={"rpm": -2000}, tally=TALLY)
    text = stored.encode_bucket(image)
    assert text == TEXT.replace("[1,{", "[2,{", 1)[:-1] + ',{"rpm":-2000},[7,2,5,{"rpm":30},3]]'
    assert stored.decode_bucket(text) == image
    assert stored.decode_bucket(stored.encode_bucket(IMAGE._replace(tally=TALLY))).tally == TALLY


def test_a_bucket_with_what_refused_its_calls():
    """Names of the bucket itself are left out, and the most frequent one if it is the last."""
    by_rpm, by_budget = LimitedBy("", "", "rpm"), LimitedBy("acme", "all", "usd")
    for refusals, spelled in (
        (Refusals(by_rpm, 1_700_000_000, by_rpm, 2), '[1700000000,2,["rpm"]]'),
        (Refusals(by_rpm, 7, by_budget, 2), '[7,2,["rpm"],["usd","all","acme"]]'),
    ):
        image = IMAGE._replace(tally=Tally(2, elsewhere=4, refusals=refusals))
        text = stored.encode_bucket(image)
        assert text.endswith(f",null,[2,0,0,{{}},0,0,4,{spelled}]]")
        assert stored.decode_bucket(text) == image
        assert unpack_bucket(pack_bucket(image)) == image


def test_a_bucket_with_slots():
    limits = {**IMAGE.limits, "parallel": LimitState(3000, Rate(5000, 0, 60_000))}
    image = IMAGE._replace(limits=limits, holds={"parallel": {1_767_225_600_000: 2}}, life="0a1b")
    text = stored.encode_bucket(image)
    assert text.startswith("[4,{")
    assert text.endswith(',13,null,[0,0,0,{}],{"parallel":[[1767225600000,2]]},null,"0a1b"]')
    assert stored.decode_bucket(text) == image


def test_a_bucket_with_quotas():
    quota = Rate.of(Limit.quota("tokens", 1000, per="day"))
    holds = {HoldName(20_522, 1_773_144_600): 50_000, HoldName(20_522, 0, True): 3}
    held = QuotaState(holds, topped=7 - 20_522 * SPAN, marked=205_222)
    limits = {"tokens": LimitState(950_000 - 20_522 * SPAN, quota, 50_000, 0, held)}
    image = IMAGE._replace(limits=limits, life="0a1b")
    text = stored.encode_bucket(image)
    assert text.endswith(',13,null,[0,0,0,{}],null,null,"0a1b"]')
    assert "[[[20522,1773144600],50000],[[20522,0,1],3]]" in text
    assert stored.decode_bucket(text) == image


@pytest.mark.parametrize(
    "limit",
    [
        Limit.quota("tokens", 1000, per="day"),
        Limit.concurrent("tokens", 5),
        Limit.concurrent("tokens", 5, soft=True),
    ],
    ids=["quota", "slots", "soft slots"],
)
def test_a_limit_with_a_number_of_its_life(limit):
    state = full_limit(Rate.of(limit), 1_773_144_600_000, 17)
    image = IMAGE._replace(limits={"tokens": state})
    text = stored.encode_bucket(image)
    assert ",17]}" in text
    assert stored.decode_bucket(text) == image


def test_a_paused_bucket():
    image = IMAGE._replace(paused_until_ms=1_767_225_600_500)
    text = stored.encode_bucket(image)
    assert text == TEXT.replace("[1,{", "[4,{", 1)[:-1] + ',null,[0,0,0,{}],null,1767225600500,""]'
    assert stored.decode_bucket(text) == image
    full = image._replace(through_children={"rpm": 1}, tally=TALLY, holds={"parallel": {5000: 2}})
    assert stored.decode_bucket(stored.encode_bucket(full)) == full


def test_a_bucket_that_never_expires():
    image = IMAGE._replace(expires_ms=None)
    assert stored.encode_bucket(image) == TEXT.replace("1767225607000", "null")
    assert stored.decode_bucket(stored.encode_bucket(image)) == image


def test_a_bucket_of_a_later_version_is_not_guessed_at():
    with pytest.raises(IncompatibleSchemaError, match="update"):
        stored.decode_bucket(TEXT.replace("[1,{", "[5,{", 1))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[1]", "[1,{", '[1,{"rpm":5},0,null,1]'])
def test_a_damaged_bucket_is_no_bare_error(text):
    with pytest.raises((RateLimiterUnavailable, IncompatibleSchemaError)):
        stored.decode_bucket(text)


def test_a_configuration():
    config = LevelConfig((Limit("rpm", 10, 5, 60),), OnUnavailable.ALLOW)
    text = '{"limits":[["rpm",10,5,60]],"on_unavailable":"allow"}'
    assert stored.encode_config(config) == text
    assert stored.decode_config(text) == config
    assert stored.decode_config('{"limits":[],"on_unavailable":null}') == LevelConfig(())
    switched = LevelConfig((), switch=Switch(SwitchMode.BYPASS, 5))
    text = '{"limits":[],"on_unavailable":null,"mode":["bypass",5]}'
    assert stored.encode_config(switched) == text
    assert stored.decode_config(text) == switched


def test_usage():
    used = {"rpm": -3000, "tpm": 10**33, "usd@USD": 7}
    usage = HourUsage(490_896, used, 4, {"rpm": -1000}, TALLY)
    row = stored.encode_usage(usage)
    counters = '{"rpm":-3,"tpm":1000000000000000000000000000000,"usd@USD":7}'
    assert row == (490_896, counters, 4, '{"rpm":-1}', '[7,2,5,{"rpm":30},3]')
    assert stored.decode_usage(*row) == usage
