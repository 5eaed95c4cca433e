"""The life cycle of one CloudFormation stack."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from zae_limiter.clock.backoff import Backoff
from zae_limiter.exceptions import StackOperationError
from zae_limiter.models.stack import StackOptions
from zae_limiter.naming import MAX_STACK_LENGTH, check_stack_name
from zae_limiter.runtime.calls import asleep
from zae_limiter.shell_words import command_line
from zae_limiter_ops.infra import names, parameters, progress
from zae_limiter_ops.infra.progress import StackEvent
from zae_limiter_ops.infra.template import template
from zae_limiter_ops.transport.control import AControl, ControlError

CAPABILITIES = ["CAPABILITY_NAMED_IAM"]
FIRST_PAUSE_S = 0.1  # a local control plane is done at once
LONGEST_PAUSE_S = 3.0
READY_WITHIN_S = 1800.0  # a stack with indexes and functions takes minutes
MAX_ATTEMPTS = 5  # each attempt waits for another deployment of the same stack
MANAGED_BY = "zae-limiter"  # the value of our tag on every stack
_NOTHING_TO_DO = ("No updates are to be performed", "didn't contain changes")

OnEvent = Callable[[StackEvent], None]


class StackChange(NamedTuple):
    """One change to a resource in the plan of a deployment."""

    action: str  # Add, Modify or Remove
    logical_id: str
    resource_type: str
    replacement: str
    details: tuple[str, ...] = ()


class StackManager:
    """Creates, updates and deletes the stack of a limiter, and waits for CloudFormation."""

    longest_name = MAX_STACK_LENGTH

    def __init__(
        self,
        name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        body: dict[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Prepare the calls. ``body`` replaces our template; ``on_event`` gets each stack event."""
        self.name = check_stack_name(name, longest=self.longest_name)
        self.region = region
        self.endpoint_url = endpoint_url
        self.control = AControl(region, endpoint_url)
        self._body = body
        self._on_event = on_event or _ignore

    async def close(self) -> None:
        """Close the connections to the services."""
        self.control.close()

    async def describe(self) -> dict[str, Any] | None:
        """Return CloudFormation's description of the stack; None if there is no stack."""
        try:
            answer = await self.control.acall(
                "cloudformation", "describe_stacks", StackName=self.name
            )
        except ControlError as error:
            if error.code == "ValidationError" and "does not exist" in error.reason:
                return None
            raise
        stack: dict[str, Any] = answer["Stacks"][0]
        return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack

    async def is_served(self) -> bool:
        """Return whether the endpoint has CloudFormation; a local DynamoDB server has not."""
        return await self.control.aserves_stacks()

    async def refuse_stuck(self) -> None:
        """Raise StackOperationError for a stack that cannot be updated."""
        status = await self.settled() if await self.is_served() else None
        if status is not None and status not in progress.USABLE:
            raise StackOperationError(self.name, _stuck(self.name, status))

    async def status(self) -> str | None:
        """Return the status of the stack; None if there is no stack."""
        stack = await self.describe()
        return None if stack is None else str(stack["StackStatus"])

    async def outputs(self) -> dict[str, str]:
        """Return the outputs of the stack by key."""
        stack = await self.describe() or {}
        return {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}

    async def options(self) -> StackOptions | None:
        """Return the options that the stack was deployed with; None if there is no stack."""
        stack = await self.describe()
        if stack is None or stack["StackStatus"] in progress.FAILED_CREATIONS:
            return None
        values = {
            each["ParameterKey"]: each.get("ParameterValue") or ""
            for each in stack.get("Parameters", ())
        }
        tags = {each["Key"]: each["Value"] for each in stack.get("Tags", ())}
        tags.pop("ManagedBy", None)
        return parameters.options_of(values, tags)

    async def deploy(self, options: StackOptions, *, wait: bool = True) -> str:
        """Create or update the stack; return "created", "updated" or "unchanged".

        If an interrupted deployment is still in progress, this one waits for its end and then
        continues. The remains of a failed creation are deleted first.
        """
        names.check_names(self.name, options)
        for _ in range(MAX_ATTEMPTS):
            status = await self.settled()
            if status in progress.FAILED_CREATIONS:
                await self.delete()
                status = None
            if status is not None and status not in progress.USABLE:
                raise StackOperationError(self.name, _stuck(self.name, status))
            try:
                if status is None:
                    return await self._create(options, wait)
                return await self._update(self._request(options), wait=wait)
            except ControlError as error:
                if not _is_concurrent_deployment(error):
                    raise
        raise StackOperationError(
            self.name, "other deployments keep changing the stack; run this again later"
        )

    async def upgrade(self) -> str:
        """Update the template of the stack, and keep its options.

        Returns "updated" or "unchanged"; "" if there is no stack.
        """
        request = await self._upgrade_request()
        return "" if request is None else await self._update(request)

    async def plan_upgrade(self) -> list[StackChange] | None:
        """Return the changes that an upgrade would make; None if there is no stack."""
        request = await self._upgrade_request()
        return None if request is None else await self._planned("UPDATE", request)

    async def delete(self, *, wait: bool = True) -> bool:
        """Delete the stack; return False if there was no stack."""
        if await self.settled() is None:
            return False
        await self._refuse_protected()
        seen = await self._event_ids()
        await self.control.acall("cloudformation", "delete_stack", StackName=self.name)
        if wait:
            status = await self.settled(seen)
            if status is not None:
                reason = progress.failure(await self._new_events(seen), status)
                raise StackOperationError(self.name, f"the stack could not be deleted: {reason}")
        return True

    async def retained_by_deleted_stacks(self, logical_id: str) -> list[str]:
        """Return the physical ids of a resource that deleted stacks of this name have retained.

        CloudFormation keeps the events of a deleted stack for 90 days, under the id of the stack.
        """
        call, service = self.control.apages, "cloudformation"
        pages = await call(service, "list_stacks", StackStatusFilter=["DELETE_COMPLETE"])
        stacks = [stack for page in pages for stack in page["StackSummaries"]]
        retained: list[str] = []
        for stack_id in [each["StackId"] for each in stacks if each["StackName"] == self.name]:
            pages = await call(service, "describe_stack_events", StackName=stack_id)
            retained += [
                str(event["PhysicalResourceId"])
                for page in pages
                for event in page["StackEvents"]
                if event["LogicalResourceId"] == logical_id
                and event["ResourceStatus"] == "DELETE_SKIPPED"
            ]
        return retained

    async def plan(self, options: StackOptions) -> list[StackChange]:
        """Return the changes that a deployment would make, from a change set without execution."""
        names.check_names(self.name, options)
        status = await self.settled()
        if status is not None and status not in progress.USABLE | {progress.EMPTY}:
            raise StackOperationError(self.name, _not_plannable(self.name, status))
        kind = "CREATE" if status in (None, progress.EMPTY) else "UPDATE"
        try:
            return await self._planned(kind, self._request(options))
        finally:
            if status is None:  # a change set for a new stack leaves an empty one behind
                await self.control.acall("cloudformation", "delete_stack", StackName=self.name)

    async def settled(self, seen: set[str] | None = None) -> str | None:
        """Wait until no operation is in progress; return the status, None if there is no stack.

        ``on_event`` gets all events meanwhile, except those whose ids are in ``seen``.
        """
        give_up_at = time.monotonic() + READY_WITHIN_S
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        seen = seen if seen is not None else await self._event_ids()
        reported: set[str] = set(seen)
        while True:
            status = await self.status()
            for event in await self._new_events(reported):
                reported.add(event.event_id)
                self._on_event(event)
            if status is None or progress.is_settled(status):
                return status
            if time.monotonic() > give_up_at:
                raise StackOperationError(
                    self.name,
                    f"the stack is still {status} after {READY_WITHIN_S:.0f} s; run this again "
                    "later",
                )
            await asleep(backoff.next_s())

    async def _create(self, options: StackOptions, wait: bool) -> str:
        await self._refuse_foreign_table()
        await self.control.acall(
            "cloudformation",
            "create_stack",
            StackName=self.name,
            OnFailure="ROLLBACK",
            **self._request(options),
        )
        if wait:
            advice = f"deploy the stack again, or delete it: {_deletion(self.name)}"
            await self._wait_for_success(set(), "creation", advice)
        return "created"

    async def _update(self, request: dict[str, Any], *, wait: bool = True) -> str:
        seen = await self._event_ids()
        try:
            await self.control.acall(
                "cloudformation", "update_stack", StackName=self.name, **request
            )
        except ControlError as error:
            if any(text in error.reason for text in _NOTHING_TO_DO):
                return "unchanged"
            raise
        if wait:
            await self._wait_for_success(seen, "update", "the stack is as it was before")
        return "updated"

    async def _wait_for_success(self, seen: set[str], operation: str, advice: str) -> None:
        """Wait for the end of an operation; raise its reason and the advice if it failed."""
        status = await self.settled(seen)
        if status is None or not progress.succeeded(status):
            reason = progress.failure(await self._new_events(seen), status or "deleted")
            raise StackOperationError(self.name, f"{operation} failed: {reason}; {advice}")

    async def _refuse_protected(self) -> None:
        """Raise if the table is protected from deletion."""
        options = await self.options()
        if options is not None and options.enable_deletion_protection:
            raise StackOperationError(
                self.name,
                "the table is protected from deletion; deploy it with --no-deletion-protection "
                "first",
            )

    async def _refuse_foreign_table(self) -> None:
        """Raise if a table of this name exists that belongs to no stack of this name."""
        try:
            await self.control.acall("dynamodb", "describe_table", TableName=self.name)
        except ControlError as error:
            if error.code == "ResourceNotFoundException":
                return
            raise
        if await self.status() is not None:  # another deployment has begun just now
            return
        raise StackOperationError(
            self.name,
            "a table of this name exists that belongs to no stack of this name; choose another "
            "--name, or export and delete the table first",
        )

    async def _upgrade_request(self) -> dict[str, Any] | None:
        """Return the request that updates the template and keeps the options of the stack.

        None if there is no stack.
        """
        status = await self.settled()
        if status is None:
            return None
        if status not in progress.USABLE:
            raise StackOperationError(self.name, _stuck(self.name, status))
        stack = await self.describe() or {}
        known = {parameter.name for parameter in parameters.PARAMETERS}
        kept = [
            {"ParameterKey": each["ParameterKey"], "UsePreviousValue": True}
            for each in stack.get("Parameters", ())
            if each["ParameterKey"] in known
        ]
        tags = stack.get("Tags", [])
        return {**self._request(StackOptions()), "Parameters": kept, "Tags": tags}

    async def _planned(self, kind: str, request: dict[str, Any]) -> list[StackChange]:
        change_set = f"plan-{uuid.uuid4().hex[:12]}"
        reference = {"StackName": self.name, "ChangeSetName": change_set}
        call = self.control.acall
        await call(
            "cloudformation", "create_change_set", **reference, ChangeSetType=kind, **request
        )
        try:
            return await self._changes(reference)
        finally:
            await call("cloudformation", "delete_change_set", **reference)

    async def _changes(self, reference: dict[str, str]) -> list[StackChange]:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            answer = await self.control.acall("cloudformation", "describe_change_set", **reference)
            status, reason = answer["Status"], answer.get("StatusReason", "")
            if status == "FAILED":
                if any(text in reason for text in _NOTHING_TO_DO):
                    return []
                raise StackOperationError(self.name, f"the plan failed: {reason}")
            if status == "CREATE_COMPLETE":
                break
            await asleep(backoff.next_s())
        pages = await self.control.apages("cloudformation", "describe_change_set", **reference)
        return [_change(each["ResourceChange"]) for page in pages for each in page["Changes"]]

    async def _event_ids(self) -> set[str]:
        return {event.event_id for event in await self._new_events(set())}

    async def _new_events(self, seen: set[str]) -> list[StackEvent]:
        """Return the events that are not in ``seen``, oldest first."""
        try:
            pages = await self.control.apages(
                "cloudformation", "describe_stack_events", StackName=self.name
            )
        except ControlError as error:
            if "does not exist" in error.reason:
                return []
            raise
        events = [StackEvent.of(each) for page in pages for each in page["StackEvents"]]
        return [event for event in reversed(events) if event.event_id not in seen]

    def _request(self, options: StackOptions) -> dict[str, Any]:
        values = parameters.values(options)
        if self._body is not None:  # another template may lack some of our parameters
            values = {name: values[name] for name in values if name in self._body["Parameters"]}
        tags = {**options.tags, "ManagedBy": MANAGED_BY}
        return {
            "TemplateBody": json.dumps(self._body or template(), separators=(",", ":")),
            "Capabilities": CAPABILITIES,
            "Parameters": [
                {"ParameterKey": key, "ParameterValue": value} for key, value in values.items()
            ],
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())],
        }


def _is_concurrent_deployment(error: ControlError) -> bool:
    """Return whether a call was refused because another deployment of the stack is in progress."""
    if error.code == "AlreadyExistsException":
        return True
    return error.code == "ValidationError" and "_IN_PROGRESS" in error.reason


def _change(change: dict[str, Any]) -> StackChange:
    return StackChange(
        change["Action"],
        change["LogicalResourceId"],
        change["ResourceType"],
        change.get("Replacement") or "",
        tuple(sorted(set(_changed_properties(change)))),
    )


def _changed_properties(change: dict[str, Any]) -> Iterator[str]:
    for detail in change.get("Details") or ():
        target = detail.get("Target") or {}
        yield str(target.get("Name") or target.get("Attribute") or "")


def _stuck(name: str, status: str) -> str:
    if status == "UPDATE_ROLLBACK_FAILED":
        words = ("cloudformation", "continue-update-rollback")
        resume = command_line(*words, options=("--stack-name", name), program="aws")
        return f"the stack is {status}: finish its rollback, then deploy again: {resume}"
    return f"the stack is {status} and cannot be updated; delete it first: {_deletion(name)}"


def _not_plannable(name: str, status: str) -> str:
    """Return the reason why CloudFormation makes no change set for a stack, and the next step."""
    if status not in progress.FAILED_CREATIONS:
        return _stuck(name, status)
    return (
        f"the stack is {status} after a failed creation, so there is no plan; 'deploy' without "
        f"--plan removes it and creates it again; to plan first, delete it: {_deletion(name)}"
    )


def _deletion(name: str) -> str:
    """Return the command that deletes a stack."""
    return command_line("delete", options=("--name", name))


def _ignore(event: StackEvent) -> None:
    """Ignore events."""
