"""What a policy permits too much or too little, and policies that differ a little from it."""

import copy

from tests.support.permissions import OTHER
from tests.support.policies import Access, allows, granted
from zae_limiter_ops.infra.statements import OWN_KEYS

NEVER = ("Scan", "DeleteTable", "PartiQLSelect")


def faults(policy, document, rights, namespace_id):
    """What is wrong with a policy, given all rights that its role needs."""
    if policy in ("full", "read"):  # of get_status(); a tenant may not call it
        rights = {*rights, Access("DescribeTable", "table")}
    found = [f"refuses {each}" for each in rights if not allows(document, each, namespace_id)]
    called = {(each.call, each.resource != "table") for each in rights}
    if policy.startswith("ns-"):
        found += _reached(document, rights, namespace_id)
        # The registry is permitted apart from a tenant's own keys.
        parts = [_part(document, rights, registry=is_registry) for is_registry in (False, True)]
    else:
        parts = [(granted(document), called)]
    found += [f"permits {each}" for permitted, needed in parts for each in permitted - needed]
    return found


def _part(document, rights, *, registry):
    """What is permitted and needed on a tenant's own keys, or on those of the registry."""
    own = [each for each in document["Statement"] if (OWN_KEYS in str(each)) is not registry]
    needed = {
        (each.call, each.resource != "table")
        for each in rights
        if all(key.startswith("_/") for key in each.keys) is registry
    }
    return granted({"Statement": own}), needed


def _reached(document, rights, namespace_id):
    """Requests of the workload that a tenant could send to another namespace."""
    own = [each for each in rights if any(key.startswith(namespace_id) for key in each.keys)]
    if not own:
        return ["is judged by no call to its own namespace"]
    foreign = []
    for access in own:
        keys = frozenset(key.replace(namespace_id, OTHER, 1) for key in access.keys)
        foreign += [access._replace(keys=keys), access._replace(keys=access.keys | keys)]
    foreign += [Access(call, "table", frozenset({f"{OTHER}/x"})) for call in NEVER]
    writes = ("UpdateItem", "PutItem", "DeleteItem")
    foreign += [Access(call, "table", frozenset({"_/SYSTEM#"})) for call in writes]
    return [f"reaches {each}" for each in foreign if allows(document, each, namespace_id)]


def mutations(document):
    """The same policy with one call less, one more, another resource, or without its condition."""
    for number, statement in enumerate(document["Statement"]):
        changes = [("Action", [each]) for each in statement["Action"]]
        for action in statement["Action"]:
            rest = [each for each in statement["Action"] if each != action]
            changes.append(("Action", rest))
        changes += [("Action", [*statement["Action"], f"dynamodb:{call}"]) for call in NEVER]
        changes += [("Resource", [each]) for each in statement["Resource"]]
        changes.append(("Resource", [*statement["Resource"], "arn:aws:dynamodb:::table/t/index/*"]))
        for key, value in changes:
            if value != statement[key] and not _same(statement, key, value):
                mutant = copy.deepcopy(document)
                mutant["Statement"][number][key] = value
                yield mutant
        if "Condition" in statement:
            mutant = copy.deepcopy(document)
            del mutant["Statement"][number]["Condition"]
            yield mutant


def _same(statement, key, value):
    """Another ARN of indexes beside the one that is there permits nothing more."""
    return key == "Resource" and granted({"Statement": [statement]}) == granted(
        {"Statement": [{**statement, key: value}]}
    )
