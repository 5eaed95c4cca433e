"""The provisioner function of a stack, called in place of a provisioner of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import (
    InfrastructureError,
    PermissionDenied,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter_ops.infra import names
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError, Problem
from zae_limiter_ops.transport.control import AControl, ControlError

if TYPE_CHECKING:
    from zae_limiter_ops.manifest.declarations import LimitsManifest

Document = dict[str, Any]
# The fields of an answer to each action that callers rely on.
ANSWERS: dict[str, dict[str, type]] = {
    "plan": {
        "changes": list,
        "create": int,
        "update": int,
        "delete": int,
        "adopt": int,
        "unchanged": int,
        "revision": str,
    },
    "apply": {
        "changes": list,
        "created": int,
        "updated": int,
        "deleted": int,
        "adopted": int,
        "unchanged": int,
    },
    "diff": {"drift": list},
}


class RemoteProvisioner:
    """Plans, applies and compares manifests by the function of a stack; answers are plain data.

    The caller needs ``lambda:InvokeFunction`` on the function, and no right on the table.
    """

    def __init__(
        self,
        stack: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        namespace: str | None = None,
        principal: str | None = None,
    ) -> None:
        self.function = names.provisioner_function(stack)
        self._endpoint_url = endpoint_url
        self._namespace = namespace
        self._principal = principal
        self._control = AControl(region, endpoint_url)

    async def close(self) -> None:
        self._control.close()

    async def is_there(self) -> bool:
        """Return whether the stack has the function; raises PermissionDenied if it is not told.

        An endpoint that has no Lambda at all, such as a local DynamoDB server, has no function.
        """
        if not await self._control.aserves_stacks():
            return False
        try:
            await self._control.acall(
                "lambda", "invoke", FunctionName=self.function, InvocationType="DryRun"
            )
        except PermissionDenied:
            raise
        except ControlError as error:
            if error.code == "ResourceNotFoundException" or self._endpoint_url is not None:
                return False
            raise
        except InfrastructureError:
            if self._endpoint_url is None:
                raise
            return False
        return True

    async def plan(self, manifest: LimitsManifest) -> Document:
        """Return what an apply would change now, and change nothing."""
        return await self._invoke("plan", manifest)

    async def apply(
        self, manifest: LimitsManifest, *, approved: str | None = None, wait_seconds: float = 0
    ) -> Document:
        """Make the changes; raises ApplyConflict if another apply was made since ``approved``."""
        return await self._invoke("apply", manifest, revision=approved, wait_seconds=wait_seconds)

    async def diff(self, manifest: LimitsManifest) -> Document:
        """Return how stored limits differ from the manifest, with the last change of each."""
        return await self._invoke("diff", manifest)

    async def _invoke(self, action: str, manifest: LimitsManifest, **more: Any) -> Document:
        payload = {
            "action": action,
            "manifest": manifest.to_dict(),
            "namespace": self._namespace,
            "principal": self._principal,
            **more,
        }
        answer = await self._control.ainvoke(self.function, payload)
        if "error" in answer:
            raise _error(answer["error"], self.function)
        if {name: type(answer.get(name)) for name in ANSWERS[action]} != ANSWERS[action]:
            raise _foreign(self.function)
        return answer


def _foreign(function: str) -> InfrastructureError:
    return InfrastructureError(
        f"the answer is not one of {function}; check the endpoint and any proxy before it, and "
        "update functions of another version"
    )


def _error(document: Document, function: str) -> ZAELimiterError:
    """Return an error like the one that the function has answered with."""
    try:
        problems = [
            Problem("manifest", tuple(each["path"]), 0, 0, each["reason"])
            for each in document.get("problems") or ()
        ]
    except (LookupError, TypeError, AttributeError):
        return _foreign(function)
    if problems:
        return ManifestError(problems)
    message = str(document.get("message"))
    if document.get("kind") == ApplyConflict.__name__:
        return ApplyConflict(message)
    if document.get("kind") == ValidationError.__name__:
        return InfrastructureError(f"{function} refuses the manifest: {message}")
    return InfrastructureError(f"{function} failed: {message}")
