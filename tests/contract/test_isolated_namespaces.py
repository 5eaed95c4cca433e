"""Whatever is done in one namespace, another one stays as it is, and tells it nothing.

The registry of namespaces, with its audit events, belongs to the store and is no part of any.
"""

from contextlib import suppress
from functools import partial
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract._sync import specs
from tests.support.generated import examples
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, ZAELimiterError
from zae_limiter.testing import FakeClock

SIGN = "victim"  # in all that the attacked namespace stores under names that others use, too
BIG = 10**6
# Ids that are parts, beginnings, or other spellings of one another, and what keys are made of.
ENTITIES = ["a", "a/b", "/", "a b", "A", "é", "e\u0301", "_default_", "0", "%23"]
PARENT = "a/b"
RESOURCES = ["r", "r/a", "r:a", "r.a"]
# What only a running test knows: ids, names and cursors of the attacked namespace.
TAKEN = ["{id}", "{name}", "{buckets}", "{entries}", "{entities}", "{custom}", "{usage}", "{event}"]
PARTS = [
    *ENTITIES, "#", "$", "..", "~", "\0", "\ud800", "💥", "SYSTEM#", "BUCKET#", "ENTITY#", "CONFIG",
    "#STATE", "$SYSTEM", "$RESOURCE:r", *TAKEN,
]  # fmt: skip
ATTACKED = "north.a"
NAMESPACES = ["north", "north.", "north.A", "north.a-", "north.a.b", "n", "a", "r", "0"]

numbers = count()

texts = st.lists(st.sampled_from(PARTS), max_size=4).map("".join)
entities = st.one_of(
    st.sampled_from(["a", PARENT]),
    st.sampled_from([*ENTITIES, "{id}", "{id}/a", "{name}"]),
    texts,
)
resources = st.one_of(st.just("r"), st.sampled_from([*RESOURCES, "_default_", "{name}"]), texts)
cursors = st.sampled_from([*TAKEN, *TAKEN, *(f"{each}#r" for each in ENTITIES)]) | texts


class Tenant:
    """One namespace, as its users have it."""

    def __init__(self, store, name):
        self.id = store.register_namespace(name)
        self.name = name
        self.repo = store.namespace(name)
        self.limiter = SyncRateLimiter(self.repo)

    def fill(self, sign):
        """Store something of every kind."""
        repo = self.repo
        limits = [Limit.per_day("rpm", BIG), Limit.per_day(f"{sign}-rpm", BIG)]
        amounts = {"rpm": 3, f"{sign}-rpm": 3}
        repo.set_system_defaults(limits, principal=sign)
        repo.create_entity(PARENT, sign, metadata={"is": sign}, principal=sign)
        for entity in ("a", sign):
            repo.create_entity(entity, sign, PARENT, cascade=True, principal=sign)
            repo.set_limits(entity, limits, "r", principal=sign)
        repo.set_resource_defaults("r", limits, principal=sign)
        for entity in (*ENTITIES, sign):
            self.acquire(entity, "r", amounts)
        for resource in (*RESOURCES, sign):
            self.acquire("a", resource, amounts)
        with suppress(RateLimitExceeded):
            self.acquire("/", "r", {"rpm": BIG})
        repo.set_mode("r.a", "a", "shadow", principal=sign)
        repo.pause("a", "r:a", 600, principal=sign)
        repo.put_provisioner_state({"is": sign})

    def acquire(self, entity, resource, amounts, **options):
        with self.limiter.acquire(entity, resource, amounts, **options) as lease:
            return lease.consumed

    def taken(self):
        """Return what others may have got hold of: its id, its name, and cursors of its lists."""
        repo = self.repo
        taken = {
            "id": self.id,
            "name": self.name,
            "buckets": repo.list_buckets(1)[1],
            "entries": repo.list_bucket_entries(1)[1],
            "entities": repo.list_entities(1)[1],
            "custom": repo.list_entities_with_custom_limits("r", 1)[1],
            "usage": repo.get_usage_snapshots(limit=1)[1],
            "event": repo.get_audit_events(limit=1)[0].event_id,
        }
        assert all(taken.values()), taken
        return taken

    def view(self):
        """Return all that its users can see."""
        repo = self.repo
        return {
            "system": repo.get_system_defaults(),
            "resources": [
                (each, repo.get_resource_defaults(each), repo.get_mode(each))
                for each in repo.list_resources()
            ],
            "entities": pages(lambda cursor: repo.list_entities(100, cursor)),
            "children": repo.get_children(PARENT),
            "custom": pages(lambda cursor: repo.list_entities_with_custom_limits("r", 9, cursor)),
            "customized": repo.list_resources_with_entity_configs(),
            "in force": [
                (repo.resolve_limits(each, "r"), repo.resolve_mode(each, "r.a"))
                for each in ("a", "a b")
            ],
            "levels": levels(self),
            # Limits of an entity that this client has never seen come from what namespaces share.
            "unseen": self.limiter.available(f"unseen {next(numbers)}", "r"),
            "wait": self.limiter.time_until_available("a", "r:a", {f"{SIGN}-rpm": 1}),
            "usage": pages(lambda cursor: repo.get_usage_snapshots(limit=1000, next_key=cursor)),
            "top": repo.get_top_usage(limit=100),
            "events": repo.get_audit_events(limit=1000),
            "state": repo.get_provisioner_state(),
        }

    def purge(self):
        self.repo.delete_namespace(self.name)
        self.repo.purge_namespace(self.id)


def pages(page):
    """Return everything that a listing contains."""
    found, cursor = page(None)
    while cursor is not None:
        more, cursor = page(cursor)
        found = [*found, *more]
    return found


def levels(tenant):
    return [
        (each.entity_id, each.resource, each.states(0))
        for each in pages(lambda cursor: tenant.repo.list_bucket_entries(100, cursor))
    ]


def attacks(entity, other, resource, cursor):
    """Return calls of every kind, by name; each takes the tenant whose namespace it is made in."""
    limit = [Limit.per_day("rpm", 5)]
    return {
        "acquire": lambda by: by.acquire(entity, resource, {"rpm": 1}, limits=limit),
        "acquire stored": lambda by: by.acquire(entity, resource, {"rpm": 1}),
        "acquire several": lambda by: by.acquire(
            entity, resource, {"rpm": 1}, limits=limit, also={(other, "r"): {"rpm": 1}}
        ),
        "available": lambda by: by.limiter.available(entity, resource),
        "check": lambda by: by.limiter.check_availability(entity, resource, limits=limit),
        "set system": lambda by: by.repo.set_system_defaults(limit, "allow"),
        "set resource": lambda by: by.repo.set_resource_defaults(resource, limit),
        "set entity": lambda by: by.repo.set_limits(entity, limit, resource),
        "delete system": lambda by: by.repo.delete_system_defaults(),
        "delete resource": lambda by: by.repo.delete_resource_defaults(resource),
        "delete limits": lambda by: by.repo.delete_limits(entity, resource),
        "mode": lambda by: by.repo.set_mode(resource, entity, "deny"),
        "create": lambda by: by.repo.create_entity(entity, parent_id=other, cascade=True),
        "ensure": lambda by: by.repo.ensure_entity(entity),
        "set parent": lambda by: by.repo.set_parent(entity, other),
        "delete": lambda by: by.repo.delete_entity(entity),
        "reset": lambda by: by.repo.reset_bucket(entity, resource),
        "top up": lambda by: by.repo.top_up(entity, resource, {"rpm": 1}),
        "pause": lambda by: by.repo.pause(entity, resource, 600),
        "state": lambda by: by.repo.put_provisioner_state({"entity": entity}),
        "get state": lambda by: by.repo.get_provisioner_state(),
        "get entity": lambda by: by.repo.get_entity(entity),
        "children": lambda by: by.repo.get_children(entity),
        "entities": lambda by: by.repo.list_entities(100, cursor),
        "entities under": lambda by: by.repo.list_entities(100, cursor, parent_id=entity),
        "resources": lambda by: by.repo.list_resources(),
        "custom": lambda by: by.repo.list_entities_with_custom_limits(resource, 100, cursor),
        "resources of entities": lambda by: by.repo.list_resources_with_entity_configs(),
        "buckets of": lambda by: by.repo.get_buckets(entity),
        "buckets": lambda by: by.repo.list_buckets(100, cursor),
        "buckets on": lambda by: by.repo.list_buckets(100, cursor, resource=resource),
        "entries": lambda by: by.repo.list_bucket_entries(100, cursor),
        "levels": levels,
        "read": lambda by: by.repo.read_buckets([(entity, resource), (other, "r")]),
        "last use": lambda by: by.repo.get_last_use(entity, resource),
        "capacity": lambda by: by.repo.get_resource_capacity(resource, "rpm"),
        "limits": lambda by: by.repo.resolve_limits(entity, resource),
        "modes": lambda by: by.repo.resolve_mode(entity, resource),
        "events": lambda by: by.repo.get_audit_events(start_event_id=cursor),
        "events of": lambda by: by.repo.get_audit_events(entity),
        "usage": lambda by: by.repo.get_usage_snapshots(next_key=cursor),
        "usage of": lambda by: by.repo.get_usage_snapshots(entity, next_key=cursor),
        "summary": lambda by: by.repo.get_usage_summary(resource=resource),
        "top": lambda by: by.repo.get_top_usage(),
    }


ALL_ATTACKS = list(attacks("", "", "", ""))
rounds = st.tuples(st.permutations(ALL_ATTACKS), entities, entities, resources, cursors)


def answer(call, tenant):
    """Return what a call has returned, or said; whatever else it raises is a defect."""
    try:
        return repr(call(tenant))
    except ZAELimiterError as error:
        return f"{type(error).__name__} {error}"


def filled(text, taken):
    for name, value in taken.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def open_store(request, tmp_path, unique_name):
    """Return a function that opens the store once more."""
    if request.param == "memory":
        spec = specs.named_memory(unique_name)
    elif request.param == "sqlite":
        spec = specs.sqlite(tmp_path)
    else:
        spec = specs.dynamodb(request.getfixturevalue("dynamodb_table"))
    return partial(spec.open, clock=FakeClock())


def test_no_attack_reaches_another_namespace(open_store):
    with open_store() as store:
        with open_store() as other:  # whose counts of rejections are stored when it is closed
            Tenant(other, ATTACKED).fill(SIGN)
        victim = Tenant(store, ATTACKED)
        taken, before = victim.taken(), victim.view()

        @examples(6 if store.capabilities.engine == "dynamodb" else 15)
        @given(
            namespace=st.sampled_from(NAMESPACES), doings=st.lists(rounds, min_size=1, max_size=3)
        )
        def attacked(namespace, doings):
            attacker, sent = Tenant(store, namespace), ""
            try:
                attacker.fill("attacker")
                for order, *templates in doings:
                    texts = [filled(template, taken) for template in templates]
                    sent += "".join(texts)  # which may come back
                    calls = attacks(*texts)
                    for name in order:
                        told = answer(calls[name], attacker)
                        assert SIGN not in told or SIGN in sent, name
                        assert victim.id not in told or victim.id in sent, name
                    assert victim.view() == before
            finally:
                attacker.purge()
            assert victim.view() == before

        attacked()
