"""The managed state as documents: pages, their growth, and rewrites that are interrupted."""

import json

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter_ops.manifest.state import (
    INLINE_CHARACTERS,
    PAGE_CHARACTERS,
    PENDING,
    ApplyLease,
    Managed,
    decode,
    encode,
    page_key,
)
from zae_limiter_ops.manifest.targets import POLICY, SYSTEM, Target, TargetKind

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="#"), min_size=1, max_size=8)
DIGESTS = st.sampled_from([PENDING, "0a1b2c", "ffee00"])
TARGETS = st.one_of(
    st.sampled_from([SYSTEM, POLICY]),
    st.builds(lambda name: Target(TargetKind.RESOURCE, resource=name), NAMES),
    st.builds(lambda name: Target(TargetKind.ENTITY, name), NAMES),
    st.builds(lambda name, other: Target(TargetKind.ENTITY_LIMITS, name, other), NAMES, NAMES),
    st.builds(lambda name: Target(TargetKind.MODE, resource=name), NAMES),
    st.builds(lambda name, other: Target(TargetKind.MODE, name, other), NAMES, NAMES),
)


@st.composite
def managed_states(draw):
    digests = draw(st.dictionaries(TARGETS, DIGESTS, max_size=12))
    places = sorted(each.entity_id for each in digests if each.kind is TargetKind.ENTITY)
    registered = draw(st.sets(st.sampled_from(places))) if places else set()
    return Managed(digests, frozenset(registered))


def many(count):
    return Managed(
        {
            Target(TargetKind.ENTITY_LIMITS, f"user-{n:06}", "gpt-4"): "0a1b2c3d"
            for n in range(count)
        }
    )


def documents(encoded):
    return json.loads(json.dumps([encoded.header, *encoded.pages]))


@given(managed_states(), st.sampled_from([0, 1, 2, 8]))
def test_a_state_survives_its_documents(managed, pages_before):
    assert decode(documents(encode(managed, pages_before))) == managed


def test_a_small_state_is_one_document_and_a_large_one_is_paged():
    small = encode(many(20))
    assert (small.header["pages"], small.pages) == (0, [])
    large = encode(many(10_000))
    assert large.header["pages"] == len(large.pages) == 8
    assert len(json.dumps(large.header)) < INLINE_CHARACTERS
    assert max(len(json.dumps(page)) for page in large.pages) < 1.5 * PAGE_CHARACTERS


def test_pages_never_become_fewer():
    assert encode(Managed(), 8).header["pages"] == 8


def test_a_rewrite_that_is_interrupted_anywhere_loses_nothing():
    for before_count, after_count in ((20, 4000), (2000, 10_000)):
        before, after = encode(many(before_count)), encode(many(after_count))
        assert len(after.pages) > len(before.pages)
        pages = dict(enumerate(before.pages, 1))
        for number in range(len(after.pages), 0, -1):  # from the last page to the first
            pages[number] = after.pages[number - 1]
            stored = [before.header, *(pages[each] for each in sorted(pages))]
            assert decode(stored).digests.keys() >= many(before_count).digests.keys()


def test_the_documented_form_of_the_state_is_understood():
    state = {
        "managed_system": True,
        "managed_resources": ["gpt-4"],
        "managed_entities": {"user": ["gpt-4"]},
    }
    assert decode([state]).digests == {
        SYSTEM: PENDING,
        Target(TargetKind.RESOURCE, resource="gpt-4"): PENDING,
        Target(TargetKind.ENTITY_LIMITS, "user", "gpt-4"): PENDING,
    }
    assert decode([{"managed_entities": 5, "managed_resources": None}]) == Managed()


def test_a_lease_that_cannot_be_read_is_none():
    lease = ApplyLease("me", 5, "2026-01-01T00:00:00.000Z", "alice")
    assert ApplyLease.from_state({"lease": lease.to_dict()}) == lease
    for header in (None, {}, {"lease": None}, {"lease": 5}, {"lease": {"owner": "me"}}):
        assert ApplyLease.from_state(header) is None


def test_pages_have_the_documented_keys():
    assert (page_key(0), page_key(3)) == ("provisioner", "provisioner#3")
