"""The program of the Fargate master: starts Locust's master and the functions that work for it.

``PLAN`` is the plan as JSON, ``RUN_ID`` the name of the run; progress and report are written to
``runs/RUN_ID/`` in ``FILES_BUCKET``. With ``WEB_UI=1`` Locust's own web interface runs instead,
until the task is stopped. Functions end after 15 minutes, so missing ones are invoked again.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.processes import NodeProcess
from zae_limiter_lab.loadtest.template import MASTER_PORT, WEB_PORT
from zae_limiter_lab.loadtest.worker import LOAD_FOLDER
from zae_limiter_ops.transport.control import Control

WORKER_LIFE_S = 840.0  # of a function's 900 s, less its start and its margin at the end
LOOK_EVERY_S = 1.0
PROGRESS_EVERY_S = 5.0  # a write to S3 each
METADATA_VARIABLE = "ECS_CONTAINER_METADATA_URI_V4"
METADATA_WITHIN_S = 5.0


class WorkerFleet:
    """Keeps as many functions working for a master as the plan has workers."""

    def __init__(
        self, control: Control, function: str, payload: Mapping[str, Any], size: int
    ) -> None:
        self._control = control
        self._function = function
        self._payload = json.dumps(payload).encode()
        self._size = size
        self._until: list[float] = []  # when each function that was invoked will have ended

    def fill(self, now: float) -> int:
        """Invoke the missing functions; return their number."""
        self._until = [until for until in self._until if until > now]
        missing = self._size - len(self._until)
        for _ in range(missing):
            self._control.call(
                "lambda",
                "invoke",
                FunctionName=self._function,
                InvocationType="Event",  # the answer is not waited for
                Payload=self._payload,
            )
            self._until.append(now + WORKER_LIFE_S)
        return missing


class RunFiles:
    """Progress and report of one run, in the bucket of the stack."""

    def __init__(self, control: Control, bucket: str, run_id: str) -> None:
        self._control = control
        self._bucket = bucket
        self._run_id = run_id

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        self._control.call(
            "s3",
            "put_object",
            Bucket=self._bucket,
            Key=run_key(self._run_id, name),
            Body=json.dumps(document).encode(),
        )


def run_key(run_id: str, name: str) -> str:
    """Return the key of a file of a run."""
    return f"runs/{run_id}/{name}.json"


class Orchestrator:
    """Runs one plan with a master in this container and functions as its workers."""

    def __init__(
        self, plan: LoadPlan, fleet: WorkerFleet, files: RunFiles, *, port: int = MASTER_PORT
    ) -> None:
        self._plan = plan
        self._port = port
        self._fleet = fleet
        self._files = files
        self._written = 0.0

    def run(self) -> int:
        """Run to the end and write the report; return the exit code."""
        with tempfile.TemporaryDirectory() as folder:
            master = NodeProcess(
                self._plan, ("master", str(self._port)), Path(folder) / "master.log"
            )
            try:
                return self._watch(master)
            finally:
                master.kill()

    def _watch(self, master: NodeProcess) -> int:
        messages = master.queue_messages()
        is_listening = is_stopping = False
        while True:
            if is_listening and not is_stopping:
                self._fleet.fill(time.monotonic())
            try:
                message = messages.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                continue
            if message is None:
                self._files.put("report", {"error": f"the Locust master {master.end()}"})
                return 1
            if message["event"] == "error":
                self._files.put("report", {"error": message["text"]})
                return 1
            if message["event"] == "done":
                self._files.put("report", {"report": message["report"]})
                return 0
            is_listening = is_listening or message["event"] == "listening"
            is_stopping = is_stopping or message["event"] == "stopping"
            self._progress(message)

    def _progress(self, message: dict[str, Any]) -> None:
        if message["event"] == "progress" and message["seconds"] >= self._written:
            self._written = message["seconds"] + PROGRESS_EVERY_S
            self._files.put("progress", message)


def serve_web(plan: LoadPlan, fleet: WorkerFleet) -> int:
    """Run Locust with its web interface until the task is stopped; a tunnel leads to it."""
    words = ["-f", plan.file, "--master", "--master-bind-port", str(MASTER_PORT)]
    words += ["--web-host", "127.0.0.1", "--web-port", str(WEB_PORT), *plan.classes]
    words += ["-H", plan.host] if plan.host else []
    with subprocess.Popen([sys.executable, "-m", "locust", *words], cwd=plan.folder) as process:
        while process.poll() is None:
            fleet.fill(time.monotonic())
            time.sleep(LOOK_EVERY_S)
        return process.returncode


def own_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return the private address of this container, which functions connect to."""
    base = environment.get(METADATA_VARIABLE)
    if not base:
        raise LoadTestError(f"{METADATA_VARIABLE} is not set: this program runs on ECS only")
    with urllib.request.urlopen(base, timeout=METADATA_WITHIN_S) as answer:
        metadata = json.load(answer)
    return str(metadata["Networks"][0]["IPv4Addresses"][0])


def worker_payload(plan: LoadPlan, address: str, port: int = MASTER_PORT) -> dict[str, Any]:
    """Return the event with which a function works for the master at this address."""
    values = asdict(replace(plan, html=None))
    del values["folder"]  # the function knows its own
    return {"mode": "worker", "plan": values, "master": address, "port": port}


def main(environment: Mapping[str, str] = os.environ) -> int:
    logging.basicConfig(level=logging.INFO)
    plan = replace(LoadPlan.of_json(environment["PLAN"]), folder=LOAD_FOLDER)
    control = Control()
    fleet = WorkerFleet(
        control,
        environment["WORKER_FUNCTION"],
        worker_payload(plan, own_address(environment)),
        plan.workers,
    )
    if environment.get("WEB_UI") == "1":
        return serve_web(plan, fleet)
    files = RunFiles(control, environment["FILES_BUCKET"], environment["RUN_ID"])
    return Orchestrator(plan, fleet, files).run()


if __name__ == "__main__":
    sys.exit(main())
