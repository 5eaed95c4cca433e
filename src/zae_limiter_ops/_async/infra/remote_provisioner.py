"""Plan, apply and compare manifests by calling the provisioner function of a stack."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import (
    InfrastructureError,
    PermissionDenied,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter_ops.infra import names
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError, Problem
from zae_limiter_ops.transport.control import AControl, ControlError

Document = dict[str, Any]
# The fields that the answer to each action must have, with their types.
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
    """Plans, applies and compares manifests with the function of a stack. Answers are JSON data.

    The caller needs ``lambda:InvokeFunction`` on the function, and no permission on the table.
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
        """Return whether the stack has the function.

        The answer is False for an endpoint without Lambda, such as a local DynamoDB server. Raises
        PermissionDenied if the caller may not invoke the function.
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
        """Return the changes that an apply would make now, without making them."""
        return await self._invoke("plan", manifest)

    async def apply(
        self, manifest: LimitsManifest, *, approved: str | None = None, wait_seconds: float = 0
    ) -> Document:
        """Make the changes; raises ApplyConflict if another apply was made since ``approved``."""
        return await self._invoke("apply", manifest, revision=approved, wait_seconds=wait_seconds)

    async def diff(self, manifest: LimitsManifest) -> Document:
        """Return each target that differs from the manifest, with the last change of the target."""
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
            raise _unexpected_answer(self.function)
        return answer


def _unexpected_answer(function: str) -> InfrastructureError:
    return InfrastructureError(
        f"{function} gave an unexpected answer; check the endpoint and any proxy before it; if the "
        "function is of another version, update it: zae-limiter upgrade"
    )


def _error(document: Document, function: str) -> ZAELimiterError:
    """Return the error that the function's answer describes."""
    try:
        problems = [
            Problem("manifest", tuple(each["path"]), 0, 0, each["reason"])
            for each in document.get("problems") or ()
        ]
    except (LookupError, TypeError, AttributeError):
        return _unexpected_answer(function)
    if problems:
        return ManifestError(problems)
    message = str(document.get("message"))
    if document.get("kind") == ApplyConflict.__name__:
        return ApplyConflict(message)
    if document.get("kind") == ValidationError.__name__:
        return InfrastructureError(f"{function} refuses the manifest: {message}")
    return InfrastructureError(f"{function} failed: {message}")
