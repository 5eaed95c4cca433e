"""The function of a load-test stack: runs users by itself, or for a master.

``{"mode": "headless", "plan": {…}}`` runs a plan here and answers with its report.
``{"mode": "worker", "plan": {…}, "master": "10.0.0.1", "port": 5557}`` works for a master until it
says to quit. Locust runs in a process of its own: a warm function must not keep the state of an
earlier test in Locust's modules, and the process of the handler stays unpatched.
"""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.processes import NodeProcess

LOAD_FOLDER = "/var/task/load"  # where the image has the pushed folder
# Time at the end of a function in which users end their tasks and the last report is sent.
MARGIN_S = 25.0
# NAT gateways and load balancers drop connections that were idle for 350 s, and a caller without a
# master waits on one for the answer.
ALONE_S = 270.0


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer an invocation; raises LoadTestError for a plan that cannot run."""
    plan = LoadPlan.of_dict({"folder": LOAD_FOLDER, **event["plan"]})
    left_s = context.get_remaining_time_in_millis() / 1000 - MARGIN_S
    if event["mode"] == "worker":
        return _run(plan, ("worker", str(event["port"]), event["master"]), left_s)
    left_s = min(left_s, ALONE_S)
    if plan.mode == "run" and plan.seconds > left_s:
        raise LoadTestError(
            f"a function can run users for {left_s:.0f} s; give a shorter --duration, or --workers"
        )
    return _run(replace(plan, workers=1), ("alone",), left_s)


def _run(plan: LoadPlan, arguments: tuple[str, ...], left_s: float) -> dict[str, Any]:
    """Run a node until it ends or its time is up; return its report."""
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(plan, arguments, Path(folder) / "node.log")
        alarm = threading.Timer(max(0.0, left_s), node.stop)
        alarm.start()
        try:
            answer: dict[str, Any] = {"finished": True}
            for line in node.messages:
                message = json.loads(line)
                if message["event"] == "error":
                    raise LoadTestError(str(message["text"]))
                if message["event"] == "done":
                    answer["report"] = message["report"]
            code = node.process.wait()
            if code:
                raise LoadTestError(f"the Locust worker {node.end()}")
            return answer
        finally:
            alarm.cancel()
            node.kill()
