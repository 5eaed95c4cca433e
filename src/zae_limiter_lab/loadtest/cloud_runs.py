"""Runs on a load-test stack: in one function, or with a Fargate master that leads functions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.cloud import LoadTestStack
from zae_limiter_lab.loadtest.orchestrator import run_key
from zae_limiter_lab.loadtest.template import MASTER_CONTAINER
from zae_limiter_ops.transport.control import ControlError

STARTED_WITHIN_S = 300.0  # of a Fargate task, which pulls its image first

OnMessage = Callable[[dict[str, Any]], None]


class CloudRuns:
    """Starts, follows and stops runs on one stack."""

    def __init__(self, stack: LoadTestStack) -> None:
        self._stack = stack

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """The outputs of the stack; it does not change during a run, so they are read once."""
        return self._stack.manager.outputs()

    def run_in_function(self, plan: LoadPlan) -> dict[str, Any]:
        """Run the plan in one function; return its report."""
        values = {**asdict(plan), "html": None, "host": plan.host or self._stack.limiter}
        del values["folder"]
        event = {"mode": "headless", "plan": values}
        report: dict[str, Any] = self._stack.control.invoke(f"{self._stack.name}-worker", event)[
            "report"
        ]
        return report

    def start_master(self, plan: LoadPlan, run_id: str, *, web: bool = False) -> str:
        """Start a Fargate task that leads as many functions as the plan has workers."""
        outputs = self._outputs
        plan = replace(plan, html=None, host=plan.host or self._stack.limiter, folder=".")
        variables = {"PLAN": plan.as_json(), "RUN_ID": run_id, "WEB_UI": "1" if web else "0"}
        answer = self._stack.control.call(
            "ecs",
            "run_task",
            cluster=outputs["Cluster"],
            taskDefinition=outputs["MasterTask"],
            launchType="FARGATE",
            enableExecuteCommand=True,  # needed for the tunnel
            networkConfiguration={
                "awsvpcConfiguration": {
                    "subnets": outputs["SubnetIds"].split(","),
                    "securityGroups": [outputs["MasterGroup"]],
                    "assignPublicIp": "ENABLED",  # to pull the image and invoke functions
                }
            },
            overrides={
                "containerOverrides": [
                    {
                        "name": MASTER_CONTAINER,
                        "environment": [
                            {"name": name, "value": value} for name, value in variables.items()
                        ],
                    }
                ]
            },
        )
        if not answer.get("tasks"):
            failures = ", ".join(str(each.get("reason")) for each in answer.get("failures", ()))
            raise LoadTestError(f"the master could not be started: {failures or 'no reason given'}")
        return str(answer["tasks"][0]["taskArn"])

    def run_distributed(self, plan: LoadPlan, on_message: OnMessage) -> dict[str, Any]:
        """Run the plan with a master and workers; return the report. Ctrl-C stops the task."""
        run_id = f"run-{uuid.uuid4().hex[:12]}"
        task = self.start_master(plan, run_id)
        try:
            return self._follow(run_id, task, on_message)
        except BaseException:
            self.stop(task)
            raise

    def stop(self, task: str) -> None:
        cluster = self._outputs["Cluster"]
        self._stack.control.call("ecs", "stop_task", cluster=cluster, task=task, reason="loadtest")

    def wait_until_running(self, task: str) -> dict[str, Any]:
        """Return the description of a task once its container runs."""
        until = time.monotonic() + STARTED_WITHIN_S
        while True:
            description = self._task(task)
            if description["lastStatus"] == "RUNNING":
                return description
            if description["lastStatus"] == "STOPPED" or time.monotonic() > until:
                reason = description.get("stoppedReason") or "it did not start in time"
                raise LoadTestError(f"the master has stopped: {reason}; see its log in CloudWatch")
            time.sleep(self._stack.look_s)

    def _follow(self, run_id: str, task: str, on_message: OnMessage) -> dict[str, Any]:
        shown = 0.0
        while True:
            answer = self._file(run_id, "report")
            if answer is not None:
                if "error" in answer:
                    raise LoadTestError(str(answer["error"]))
                report: dict[str, Any] = answer["report"]
                return report
            progress = self._file(run_id, "progress")
            if progress is not None and progress["seconds"] > shown:
                shown = progress["seconds"]
                on_message(progress)
            stopped = self._task(task)["lastStatus"] == "STOPPED"
            if stopped and self._file(run_id, "report") is None:
                raise LoadTestError("the master has stopped without a report; see its log")
            time.sleep(self._stack.look_s)

    def _task(self, task: str) -> dict[str, Any]:
        cluster = self._outputs["Cluster"]
        answer = self._stack.control.call("ecs", "describe_tasks", cluster=cluster, tasks=[task])
        # ECS may not know a task in the first seconds after it was started.
        description: dict[str, Any] = next(iter(answer["tasks"]), {"lastStatus": "PENDING"})
        return description

    def _file(self, run_id: str, name: str) -> dict[str, Any] | None:
        bucket = self._outputs["FilesBucket"]
        try:
            answer = self._stack.control.call(
                "s3", "get_object", Bucket=bucket, Key=run_key(run_id, name)
            )
        except ControlError as error:
            if error.code == "NoSuchKey":
                return None
            raise
        document: dict[str, Any] = json.loads(answer["Body"].read())
        return document
