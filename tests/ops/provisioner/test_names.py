"""The documented names of the package, and a comparison that uses them."""

import zae_limiter_provisioner
from zae_limiter_ops.manifest.state import Managed
from zae_limiter_provisioner import (
    Change,
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
    compute_diff,
)


def test_the_package_has_the_documented_names():
    assert set(zae_limiter_provisioner.__all__) == {
        "ApplyResult",
        "Change",
        "EntityDecl",
        "LimitDecl",
        "LimitsManifest",
        "ResourceDecl",
        "SystemDecl",
        "compute_diff",
        "handler",
        "on_event",
    }


def test_declarations_are_compared_with_what_is_stored():
    limits = {"rpm": LimitDecl(5)}
    manifest = LimitsManifest(
        system=SystemDecl(limits),
        resources={"api": ResourceDecl(limits)},
        entities={"user": EntityDecl({"api": ResourceDecl(limits)})},
    )
    changes = compute_diff(manifest, Managed(), {})
    assert all(isinstance(change, Change) for change in changes)
    assert [str(change.target) for change in changes] == [
        "system",
        "resource api",
        "entity user on api",
    ]
