"""What SQLite keeps, and what memory packs, reads back as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import images, limits, moments, tallies
from zae_limiter import IncompatibleSchemaError, OnUnavailable
from zae_limiter.admission.in_force import alias_of
from zae_limiter.admission.tally import NO_TALLY
from zae_limiter.admission.usage import HourUsage, milli_of
from zae_limiter.embedded.memory import rows as packed
from zae_limiter.embedded.sqlite import rows as stored
from zae_limiter.models.config import LevelConfig

names = st.sampled_from(["rpm", "tpm", "rpd"])


@given(
    moments().flatmap(images),
    st.none() | moments(),
    st.none() | st.dictionaries(names, st.dictionaries(moments(), st.integers(1, 9))),
)
def test_a_bucket_reads_back_as_it_was(image, paused_until_ms, holds):
    image = image._replace(paused_until_ms=paused_until_ms, holds=holds)
    beside = {alias_of(name, state.rate): state for name, state in image.limits.items()}
    image = image._replace(limits={**image.limits, **beside})
    back = stored.decode_bucket(stored.encode_bucket(image))
    assert back == image
    assert packed.unpack_bucket(packed.pack_bucket(image)) == image
    assert list(back.limits) == list(image.limits)
    assert [type(state) for state in back.limits.values()] == [
        type(state) for state in image.limits.values()
    ]


@given(moments().flatmap(images))
def test_a_bucket_of_another_format_is_not_guessed_at(image):
    text = stored.encode_bucket(image)
    other = json.dumps([stored.BUCKET_FORMAT + 1, *json.loads(text)[1:]])
    with pytest.raises(IncompatibleSchemaError):
        stored.decode_bucket(other)


@given(
    st.lists(names, min_size=1, unique=True).flatmap(
        lambda chosen: st.tuples(*(limits(name) for name in chosen))
    ),
    st.none() | st.sampled_from(OnUnavailable),
)
def test_a_configuration_reads_back_as_it_was(chosen, policy):
    config = LevelConfig(chosen, policy)
    assert stored.decode_config(stored.encode_config(config)) == config


@given(
    st.integers(0, 10**7),
    st.dictionaries(names, st.integers(-(10**30), 10**30)),
    st.integers(0, 10**12),
    st.dictionaries(names, st.integers(-(10**30), 10**30)),
    tallies(names, 10**12) | st.just(NO_TALLY),
)
def test_usage_reads_back_as_it_was(hour, counters, events, through, tally):
    usage = HourUsage(hour, milli_of(counters), events, milli_of(through), tally)
    assert stored.decode_usage(*stored.encode_usage(usage)) == usage
    assert packed.unpack_usage(hour, packed.pack_usage(usage)) == usage


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # text of any kind, half surrogate pairs included
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), documents, max_size=4))
def test_a_document_reads_back_as_it_was(document):
    text = stored.encode_document(document)
    assert text.isascii()
    assert stored.decode_document(text) == document
