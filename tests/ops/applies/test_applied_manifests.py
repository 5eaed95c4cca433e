"""After apply(A), changes by hand and apply(B), the store has B and all unmanaged settings."""

import itertools
import uuid
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRepository
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ManifestError
from zae_limiter_ops.manifest.targets import ALONE, Setting, Target, TargetKind, wanted_settings

RESOURCES, ENTITIES, PARENTS = ["api", "chat"], ["e1", "e2", "e3"], ["e1", "team"]
SYSTEM, POLICY = Target(TargetKind.SYSTEM), Target(TargetKind.POLICY)
LIMITS = st.dictionaries(
    st.sampled_from(["rpm", "tpm"]), st.sampled_from([1, 2, "3/hour:4"]), min_size=1, max_size=2
)
POLICIES = st.sampled_from(["allow", "block"])


def limited(names, **more):
    return st.dictionaries(
        st.sampled_from(names), st.fixed_dictionaries({"limits": LIMITS}, **more), max_size=2
    )


@st.composite
def entity_sections(draw):
    """Entities with limits, a parent, a registration, or several of them."""
    section = {}
    for entity_id in draw(st.sets(st.sampled_from(ENTITIES))):
        entity = {"resources": draw(limited([*RESOURCES, "_default_"]))}
        parent = draw(st.sampled_from([None, *(each for each in PARENTS if each != entity_id)]))
        registered = draw(st.sampled_from([None, True] if parent else [None, True, False]))
        if registered is not None:
            entity["registered"] = registered
        if parent is not None:
            entity |= {"parent": parent, "cascade": draw(st.booleans())}
        if len(entity) > 1 or entity["resources"]:
            section[entity_id] = entity
    return section


def _read(document):
    """Return a manifest; one without any setting cannot be read."""
    try:
        return LimitsManifest.from_dict(document)
    except ManifestError:
        return LimitsManifest()


MANIFESTS = st.fixed_dictionaries(
    {},
    optional={
        "system": st.fixed_dictionaries(
            {}, optional={"limits": LIMITS, "on_unavailable": POLICIES}
        ),
        "resources": limited(RESOURCES),
        "entities": entity_sections(),
    },
).map(_read)

RATES = st.sampled_from([[Limit.per_minute("rpm", 1)], [Limit.per_minute("rpm", 9)]])
HAND = st.one_of(
    st.tuples(st.just("set_system_defaults"), RATES, POLICIES),
    st.tuples(st.just("set_resource_defaults"), st.sampled_from(RESOURCES), RATES),
    st.tuples(st.just("set_limits"), st.sampled_from(ENTITIES), RATES, st.sampled_from(RESOURCES)),
    st.tuples(st.just("create_entity"), st.sampled_from(ENTITIES), st.sampled_from([None, "Name"])),
    st.tuples(st.just("set_parent"), st.sampled_from(ENTITIES), st.sampled_from([None, "other"])),
    st.tuples(st.just("delete_system_defaults")),
    st.tuples(st.just("delete_resource_defaults"), st.sampled_from(RESOURCES)),
    st.tuples(st.just("delete_limits"), st.sampled_from(ENTITIES), st.sampled_from(RESOURCES)),
    st.tuples(st.just("delete_entity"), st.sampled_from(ENTITIES)),
)
HANDS = st.lists(HAND, max_size=5)


def by_hand(repository, steps):
    for method, *args in steps:
        exists = (
            repository.get_entity(args[0]) if method in ("create_entity", "set_parent") else None
        )
        if (method == "create_entity" and exists) or (method == "set_parent" and not exists):
            continue
        getattr(repository, method)(*args)


def stored(repository):
    """Return all stored settings by target, read through the methods for single items."""
    limits, policy = repository.get_system_defaults()
    settings = {SYSTEM: Setting(tuple(limits))} if limits else {}
    if policy is not None:
        settings[POLICY] = Setting(on_unavailable=policy)
    for resource in repository.list_resources_with_defaults():
        target = Target(TargetKind.RESOURCE, resource=resource)
        settings[target] = Setting(tuple(repository.get_resource_defaults(resource)))
    for resource in repository.list_resources_with_entity_configs():
        for entity_id in repository.list_entities_with_custom_limits(resource)[0]:
            target = Target(TargetKind.ENTITY_LIMITS, entity_id, resource)
            settings[target] = Setting(tuple(repository.get_limits(entity_id, resource)))
    for entity in repository.list_entities()[0]:
        place = Setting(parent=entity.parent_id, cascade=entity.cascade)
        settings[Target(TargetKind.ENTITY, entity.id)] = place._replace(
            is_described=entity.name is not None
        )
    return {
        target: (setting.content(), setting.is_described) for target, setting in settings.items()
    }


def expected(before, managed, registered, second):
    """Return the earlier settings that apply(second) must keep; ``managed`` are settings."""
    wanted = wanted_settings(second)
    left = {target: value for target, value in before.items() if target not in managed}
    for target in managed.keys() - wanted.keys():
        if target.kind is TargetKind.ENTITY and target in before:
            content, is_described = before[target]
            if managed[target].keeps_place:
                if is_described or target not in registered or content != ALONE.content():
                    left[target] = before[target]
            elif is_described or target not in registered:
                left[target] = (ALONE.content(), is_described)
    for target, setting in wanted.items():
        content, is_described = before.get(target, (ALONE.content(), False))
        if not setting.keeps_place:
            content = setting.content()
        elif target in managed and not managed[target].keeps_place:
            content = ALONE.content()
        left[target] = (content, is_described)
    return left


@contextmanager
def store(engine, folder):
    """A store that all examples of a test share; each has a namespace of its own."""
    with ExitStack() as stack:
        if engine == "memory":
            url = f"memory://{uuid.uuid4().hex}"
        elif engine == "sqlite":
            url = f"sqlite:///{folder}/limits.db?synchronous=OFF"
        else:
            url = store_url(stack.enter_context(empty_table()), shared_endpoint())
        builder = SyncRepository.builder().url(url).request_timeout(30).config_cache_ttl(0)
        yield stack.enter_context(builder.register_missing_namespace().build())


def check(root, name, steps):
    initially, first, between, second = steps
    root.register_namespace(name)
    repository = root.namespace(name)
    by_hand(repository, initially)
    before = stored(repository)
    provisioner = repository.provisioner("test")
    provisioner.apply(first)
    managed = wanted_settings(first)
    registered = {
        target for target in managed if target.kind is TargetKind.ENTITY and target not in before
    }
    assert stored(repository) == expected(before, {}, set(), first)
    assert provisioner.plan(first).is_empty
    by_hand(repository, between)
    before = stored(repository)
    result = provisioner.apply(second)
    assert stored(repository) == expected(before, managed, registered, second)
    assert (result.created, result.updated, result.deleted) != (0, 0, 0) or result.changes == []
    assert provisioner.plan(second).is_empty
    assert provisioner.diff(second) == []
    exported = _read(provisioner.export().to_dict())
    before = stored(repository)
    assert provisioner.apply(exported).changes == []
    assert provisioner.plan(exported).is_empty
    assert stored(repository) == before


NAMES = (f"n{number}" for number in itertools.count())
EXAMPLES = {"memory": 40, "sqlite": 20, "dynamodb": 6}


@pytest.mark.parametrize("engine", EXAMPLES)
def test_what_is_left_is_the_manifest_and_what_was_never_managed(engine, tmp_path):
    with store(engine, tmp_path) as root:

        @settings(max_examples=EXAMPLES[engine])
        @given(st.tuples(HANDS, MANIFESTS, HANDS, MANIFESTS))
        def run(steps):
            check(root, next(NAMES), steps)

        run()


@pytest.mark.slow
@pytest.mark.parametrize("engine", EXAMPLES)
def test_what_is_left_long_form(engine, tmp_path):
    with store(engine, tmp_path) as root:

        @settings(max_examples=10 * EXAMPLES[engine])
        @given(st.tuples(HANDS, MANIFESTS, HANDS, MANIFESTS))
        def run(steps):
            check(root, next(NAMES), steps)

        run()
