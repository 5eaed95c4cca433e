"""Plan, apply and compare manifests by calling the provisioner function of a stack."""

from __future__ import annotations

from typing import Any

from zae_limiter.clock import Deadline
from zae_limiter.exceptions import (
    InfrastructureError,
    PermissionDenied,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter_ops._async.provisioner.apply_changes import Progress
from zae_limiter_ops.infra import names
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import DeletionsRefused
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError, Problem
from zae_limiter_ops.transport.control import AControl, ControlError

Document = dict[str, Any]
# The time that the function gets for one call of an apply. NAT gateways and load balancers drop
# connections that were idle for 350 s, so a call must answer earlier, with its last batch.
CALL_S = 240.0
UNFINISHED = "unfinished"
# The fields that the answer to each action must have, with their types.
ANSWERS: dict[str, dict[str, type]] = {
    "plan": {
        "changes": list,
        "create": int,
        "update": int,
        "delete": int,
        "adopt": int,
        "unchanged": int,
        "existing": int,
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
    UNFINISHED: {"done": int, "total": int, "revision": str},
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
        call_seconds: float = CALL_S,
    ) -> None:
        self.function = names.provisioner_function(stack)
        self._endpoint_url = endpoint_url
        self._namespace = namespace
        self._principal = principal
        self._call_s = call_seconds
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
        self,
        manifest: LimitsManifest,
        *,
        approved: str | None = None,
        allow_deletions: float | None = None,
        wait_seconds: float = 0,
        progress: Progress | None = None,
    ) -> Document:
        """Make the changes; raises ApplyConflict if another apply was made since ``approved``.

        Raises DeletionsRefused if the apply would delete more settings than it may.
        A long apply takes several calls. ``progress`` is called between them with the number of
        changes made and the number of all changes.
        """
        result: Document | None = None
        waiting = Deadline(wait_seconds)
        while True:
            try:
                answer = await self._invoke(
                    "apply",
                    manifest,
                    revision=approved,
                    allow_deletions=allow_deletions,
                    seconds=self._call_s,
                    wait_seconds=min(max(waiting.left(), 0), self._call_s),
                )
            except ApplyConflict as conflict:
                if conflict.is_in_progress and waiting.left() > 0:
                    continue
                raise
            unfinished = answer.pop(UNFINISHED, None)
            result = result or answer  # the first answer has the changes of all calls
            if unfinished is None:
                return result
            self._check_answer(UNFINISHED, unfinished)
            approved = unfinished["revision"]
            if progress is not None:
                remaining = unfinished["total"] - unfinished["done"]
                progress(len(result["changes"]) - remaining, len(result["changes"]))

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
        self._check_answer(action, answer)
        return answer

    def _check_answer(self, kind: str, answer: object) -> None:
        """Raise unless an answer, or a part of an answer, has its fields."""
        fields = ANSWERS[kind]
        if (
            not isinstance(answer, dict)
            or {name: type(answer.get(name)) for name in fields} != fields
        ):
            raise _unexpected_answer(self.function)


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
        return ApplyConflict(message, is_in_progress=bool(document.get("in_progress")))
    if document.get("kind") == DeletionsRefused.__name__:
        return DeletionsRefused(message)
    if document.get("kind") == ValidationError.__name__:
        return InfrastructureError(f"{function} refuses the manifest: {message}")
    return InfrastructureError(f"{function} failed: {message}")
