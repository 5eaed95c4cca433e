"""Two routes to the stored limits: the provisioner function of the stack, or the store itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import PermissionDenied
from zae_limiter_ops.cli.limits.source import in_namespace
from zae_limiter_ops.cli.shared.tables import print_hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops._sync.infra.remote_provisioner import RemoteProvisioner
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.manifest.declarations import LimitsManifest

Document = dict[str, Any]

# A batch of an apply is one call: longer than a command that changes one item may take.
APPLY_TIMEOUT_S = 10.0


class DirectRoute:
    """Plans, applies and diffs on the store itself; its answers have the form of the function's."""

    def __init__(self, repository: SyncRepository, principal: str | None = None) -> None:
        self._provisioner = repository.provisioner(principal)

    def plan(self, manifest: LimitsManifest) -> Document:
        return self._provisioner.plan(manifest).to_dict()

    def apply(
        self,
        manifest: LimitsManifest,
        approved: str,
        allow_deletions: int | None,
        wait_seconds: float,
        progress: Callable[[int, int], None],
    ) -> Document:
        result = self._provisioner.apply(
            manifest,
            approved=approved,
            allow_deletions=allow_deletions,
            wait_seconds=wait_seconds,
            progress=progress,
        )
        return result.to_dict()

    def diff(self, manifest: LimitsManifest) -> Document:
        return {"drift": [drift.to_dict() for drift in self._provisioner.diff(manifest)]}


class FunctionRoute:
    """Plans, applies and diffs by the provisioner function of the stack."""

    def __init__(self, provisioner: RemoteProvisioner) -> None:
        self._provisioner = provisioner
        self.plan, self.diff = provisioner.plan, provisioner.diff

    def apply(
        self,
        manifest: LimitsManifest,
        approved: str,
        allow_deletions: int | None,
        wait_seconds: float,
        progress: Callable[[int, int], None],
    ) -> Document:
        """Apply with progress between the calls of the function."""
        return self._provisioner.apply(
            manifest,
            approved=approved,
            allow_deletions=allow_deletions,
            wait_seconds=wait_seconds,
            progress=progress,
        )


@contextmanager
def open_route(
    store: StoreLocation,
    manifest: LimitsManifest,
    *,
    direct: bool,
    create: bool = False,
    principal: str | None = None,
) -> Iterator[DirectRoute | FunctionRoute]:
    """Open a route to the namespace of the manifest.

    The route leads through the provisioner function if the stack has one, unless ``direct``.
    """
    location = in_namespace(store, manifest)
    if not direct and location.has_stack:
        from zae_limiter_ops._sync.infra.remote_provisioner import RemoteProvisioner

        namespace = location.namespace
        remote = RemoteProvisioner(*location.stack(), namespace=namespace, principal=principal)
        try:
            if _is_usable(remote):
                yield FunctionRoute(remote)
                return
        finally:
            remote.close()
    if location.has_stack:
        with location.open(create=create):  # a store that does not answer must not take longer
            pass
    with location.open(create=create, timeout_s=APPLY_TIMEOUT_S) as repository:
        yield DirectRoute(repository, principal)


def _is_usable(remote: RemoteProvisioner) -> bool:
    """Return whether the stack has the function and the caller may call it.

    A note tells a caller who may not call it.
    """
    try:
        return remote.is_there()
    except PermissionDenied:
        print_hint(
            "table",
            f"note: lambda:InvokeFunction on {remote.function} is not permitted; the table itself "
            "is used, as with --direct",
        )
        return False
