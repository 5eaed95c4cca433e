"""One run: its stack, its steps one after the other, and the deletion in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.accept_aws.records import FAILED, PASSED, SKIPPED, Report, Skip, StepResult
from zae_limiter._version import __version__
from zae_limiter_ops._sync.infra.deployment import Deployment
from zae_limiter_ops.transport.control import Control

TAG = "zae-limiter-acceptance"  # the stack of a run has it; no other stack is ever deleted
POLL_S = 1.0
CREATED_TABLES = "created-tables.txt"


@dataclass(frozen=True)
class Settings:
    """The arguments of the command."""

    name: str
    region: str
    folder: Path
    endpoint_url: str | None = None
    keep: bool = False
    workers: int = 4
    select: str = "dynamo"  # pytest's -k for the contract suite
    forms: Path | None = None
    settle_s: float = 1.0
    moment_s: float = 3.0  # the request timeout of tests about outages
    within_s: float = 600.0


class Run:
    """The account, the stack and the report, for all steps."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = settings.name
        self.deployment = Deployment(
            settings.name, settings.region, settings.endpoint_url, on_event=_say_event
        )
        settings.folder.mkdir(parents=True, exist_ok=True)
        self.control: Control = self.deployment.manager.control
        identity = self.control.call("sts", "get_caller_identity")
        self.partition = identity["Arn"].split(":")[1]
        self.is_deployed = False
        self.report_folder = settings.folder
        self.report = Report(
            account=identity["Account"],
            region=settings.region,
            stack=settings.name,
            endpoint=settings.endpoint_url or "AWS",
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def opening(self) -> dict[str, Any]:
        """The arguments with which a repository of the stack is opened."""
        return {
            "stack": self.name,
            "region": self.settings.region,
            "endpoint_url": self.settings.endpoint_url,
            "request_timeout": 10,
        }

    @property
    def created_tables(self) -> Path:
        """The file with the names of the tables that suites have created."""
        return self.settings.folder / CREATED_TABLES

    def credentials(self) -> Any:
        """Return the credentials of the caller."""
        from botocore.session import Session

        found = Session().get_credentials()
        if found is None:
            raise Skip("no AWS credentials were found")
        return found

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Poll a condition; raise TimeoutError with ``what`` if it stays false too long."""
        give_up_at = time.monotonic() + self.settings.within_s
        pause_s = 0.05  # a local control plane is done at once
        while not condition():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{what} did not happen within {self.settings.within_s:.0f} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_S)

    def close(self) -> None:
        self.deployment.close()


@dataclass(frozen=True)
class Step:
    """One step: a function that returns a detail for the report, or raises."""

    name: str
    function: Callable[[Run], str]
    needs_stack: bool = True


def execute(run: Run, steps: list[Step], ending: list[Step]) -> None:
    """Run the steps, then those of the ending, also after a failed step or an interrupt.

    An interrupt during the ending says which resources to delete by hand.
    """
    interrupted = False
    try:
        for number, step in enumerate(steps, 1):
            say(f"[{number}/{len(steps)}] {step.name} …")
            perform(run, step)
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted: the resources are deleted now; interrupt again to leave them")
    try:
        for step in ending:
            say(f"[end] {step.name} …")
            perform(run, step)
    except KeyboardInterrupt:
        say(by_hand(run))
        raise
    if interrupted:
        raise KeyboardInterrupt


def perform(run: Run, step: Step) -> StepResult:
    """Run one step, and add its result to the report; an interrupt is noted and passed on."""
    started = time.monotonic()
    outcome, detail = FAILED, "interrupted"
    try:
        if step.needs_stack and not run.is_deployed:
            raise Skip("the stack was not deployed")
        outcome, detail = PASSED, step.function(run)
    except Skip as reason:
        outcome, detail = SKIPPED, str(reason)
    except Exception as error:  # noqa: BLE001 - whatever fails, the resources must be deleted
        outcome, detail = FAILED, f"{type(error).__name__}: {error}"
    finally:
        result = StepResult(step.name, outcome, round(time.monotonic() - started, 1), detail)
        run.report.steps.append(result)
        run.report.write(run.report_folder)
        say(result.line)
    return result


def by_hand(run: Run) -> str:
    """Return what to delete by hand after an interrupted deletion."""
    return (
        f"Not everything is deleted. Run this command again with --resume --delete, or delete by "
        f"hand: the stacks {run.name}-limits and {run.name}, the roles {run.name}-accept-*, the "
        f"tables in {run.created_tables}, the bucket of the archive, and the log groups "
        f"/aws/lambda/{run.name}-*"
    )


def say(text: str) -> None:
    """Print progress at once, also into a file."""
    print(text, flush=True)


def _say_event(event: Any) -> None:
    if not event.status.endswith("_IN_PROGRESS"):
        say(f"    {event.logical_id} {event.status} {event.reason}".rstrip())
