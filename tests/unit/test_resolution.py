import itertools

import pytest

from zae_limiter import ConfigSource, Entity, Limit, OnUnavailable, ValidationError
from zae_limiter.admission.image import Rate
from zae_limiter.admission.in_force import alias_of
from zae_limiter.admission.resolution import override, resolve
from zae_limiter.models.config import ConfigSnapshot, LevelConfig

LEVELS = {
    "entity_resource": ConfigSource.ENTITY,
    "entity_default": ConfigSource.ENTITY_DEFAULT,
    "resource": ConfigSource.RESOURCE,
    "system": ConfigSource.SYSTEM,
}
RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)


def resolved(ttl_multiplier=7, **levels):
    return resolve(
        ConfigSnapshot(7, **levels),
        entity_id="user-1",
        resource="gpt-4",
        ttl_multiplier=ttl_multiplier,
    )


def config(capacity, **options):
    return LevelConfig((Limit("rpm", capacity, 1, 1),), **options)


@pytest.mark.parametrize(
    "present",
    [chosen for size in range(5) for chosen in itertools.combinations(LEVELS, size)],
    ids="+".join,
)
def test_the_first_level_that_has_limits_wins(present):
    levels = {name: config(place) for place, name in enumerate(LEVELS, 1) if name in present}
    in_force = resolved(**levels).in_force
    if not present:
        assert in_force is None
        return
    assert in_force.source is LEVELS[present[0]]
    assert in_force.limits == levels[present[0]].limits
    assert in_force.version == 7


def test_a_level_wins_whole_and_is_not_mixed_with_the_next():
    levels = {"entity_default": LevelConfig((RPM,)), "system": LevelConfig((TPM,))}
    assert resolved(**levels).in_force.names == ("rpm",)


def test_a_level_without_limits_does_not_win():
    levels = {"resource": LevelConfig(()), "system": LevelConfig((TPM,))}
    assert resolved(**levels).in_force.source is ConfigSource.SYSTEM


@pytest.mark.parametrize("policy", [None, *OnUnavailable])
def test_the_outage_policy_comes_from_the_system_whatever_limits_win(policy):
    levels = {"resource": config(1), "system": config(2, on_unavailable=policy)}
    assert resolved(**levels).on_unavailable is policy
    assert resolved(resource=config(1)).on_unavailable is None


@pytest.mark.parametrize(
    ("entity", "parent", "cascade"),
    [
        (None, None, False),
        (Entity("a"), None, False),
        (Entity("a", parent_id="b"), "b", False),
        (Entity("a", parent_id="b", cascade=True), "b", True),
    ],
)
def test_parent_and_cascade_come_from_the_entity(entity, parent, cascade):
    found = resolved(entity=entity)
    assert (found.parent_id, found.cascade) == (parent, cascade)


# --- how long a bucket is kept


@pytest.mark.parametrize(
    ("level", "keep_ms"),
    [
        ("system", 7 * 60_000),
        ("resource", 7 * 60_000),
        ("entity_resource", None),
        ("entity_default", None),
    ],
)
def test_only_buckets_on_defaults_expire(level, keep_ms):
    levels = {level: LevelConfig((RPM, Limit.per_second("rps", 5)))}
    assert resolved(**levels).in_force.keep_ms == keep_ms
    assert resolved(ttl_multiplier=0, **levels).in_force.keep_ms is None


# --- limits of a call


def test_limits_of_a_call_live_under_their_own_names_where_nothing_else_is_configured():
    bare = resolved()
    assert override((RPM,), bare, 7).keys == ("rpm",)
    other = resolved(system=LevelConfig((TPM,)))
    assert override((RPM,), other, 7).keys == ("rpm",)
    same = resolved(system=LevelConfig((RPM,)))
    assert override((RPM,), same, 7).keys == ("rpm",)


def test_limits_of_a_call_that_differ_from_the_configured_live_beside_them():
    found = resolved(system=LevelConfig((RPM, TPM)))
    own = Limit("rpm", 99, 1, 1)
    in_force = override((own, TPM), found, 7)
    assert in_force.names == ("rpm", "tpm")
    assert in_force.keys == (alias_of("rpm", Rate.of(own)), "tpm")
    assert in_force.source is ConfigSource.OVERRIDE
    assert in_force.version == 7


def test_limits_whose_checksums_are_equal_have_balances_of_their_own():
    """32 bits were not enough: a checksum of 32 bits is the same for these two."""
    one, other = (
        Rate(731_217_000, 225_488_000, 73_108_000),
        Rate(911_465_000, 339_167_000, 85_319_000),
    )
    assert alias_of("rpm", one) != alias_of("rpm", other)
    assert len(alias_of("rpm", one)) == len("rpm~") + 16


@pytest.mark.parametrize(
    ("notation", "stored_name"),
    [
        ("rpm:1000/min:1500", "rpm~fc2d8203f8576f95"),
        ("rpm:1000/min,soft", "rpm~b4de2ba978376488"),
        ("parallel:20/concurrent:60s", "parallel~aaa9602f19793b13"),
        ("parallel:20/concurrent:60s,soft", "parallel~4de967a1d1475389"),
        ("tokens:1M/month@Europe/Berlin,on=31,hold=10m,warn=50+80", "tokens~972ddea3938adfb8"),
        ("tokens:1M/day@UTC", "tokens~742ff331aa35d9f4"),
        ("session:500k/5h@first-use,hold=never", "session~465741c38e94a7a4"),
        ("usd:250USD/month@America/New_York,soft", "usd~d95d21a9f0f67589"),
        ("eur:0.000000001EUR/week@UTC,on=mon", "eur~d45ff07b0f7fc640"),
    ],
)
def test_a_limit_of_a_call_keeps_its_stored_name(notation, stored_name):
    """With another name, all callers that bring the limit would have full buckets."""
    limit = Limit.parse(notation)
    assert alias_of(limit.name, Rate.of(limit)) == stored_name


# --- what a limit's amounts are


def test_amounts_come_in_the_order_of_the_limits():
    in_force = resolved(system=LevelConfig((RPM, TPM))).in_force
    assert in_force.amounts_milli({"tpm": 5}) == {"rpm": 0, "tpm": 5000}


def test_an_unknown_source_is_no_source():
    with pytest.raises(ValidationError):
        OnUnavailable.parse("maybe")
    assert [source.is_entity_level for source in LEVELS.values()] == [True, True, False, False]
