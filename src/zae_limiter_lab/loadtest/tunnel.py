"""The tunnel to the web interface of a Fargate master: SSM's port forwarding, over its plugin."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.error import URLError

from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.template import MASTER_CONTAINER, WEB_PORT
from zae_limiter_ops.transport.control import Control

PLUGIN = "session-manager-plugin"
DOCUMENT = "AWS-StartPortForwardingSession"
READY_WITHIN_S = 120.0
LOOK_EVERY_S = 1.0


def find_plugin() -> str:
    """Return the path of the plugin; raises with how to get it."""
    program = shutil.which(PLUGIN)
    if program is None:
        raise LoadTestError(
            f"{PLUGIN} is not installed; it opens the tunnel: see 'Install the Session Manager "
            "plugin' in the AWS documentation"
        )
    return program


def session_request(cluster: str, task: dict[str, Any], local_port: int) -> dict[str, Any]:
    """Return the request for a session that forwards a local port to the web interface."""
    runtime = next(
        each["runtimeId"] for each in task["containers"] if each["name"] == MASTER_CONTAINER
    )
    task_id = task["taskArn"].rpartition("/")[2]
    return {
        "Target": f"ecs:{cluster}_{task_id}_{runtime}",
        "DocumentName": DOCUMENT,
        "Parameters": {"portNumber": [str(WEB_PORT)], "localPortNumber": [str(local_port)]},
    }


def plugin_command(
    program: str, session: dict[str, Any], request: dict[str, Any], region: str
) -> list[str]:
    """Return the command line of the plugin, as the AWS command line calls it."""
    answer = {name: session[name] for name in ("SessionId", "TokenValue", "StreamUrl")}
    endpoint = f"https://ssm.{region}.amazonaws.com"
    return [
        program,
        json.dumps(answer),
        region,
        "StartSession",
        "",  # no profile: the session is open already
        json.dumps({"Target": request["Target"]}),
        endpoint,
    ]


def open_tunnel(
    control: Control, cluster: str, task: dict[str, Any], local_port: int
) -> subprocess.Popen[bytes]:
    """Start the plugin; the tunnel is open while it runs."""
    program = find_plugin()
    request = session_request(cluster, task, local_port)
    session = control.call("ssm", "start_session", **request)
    region = task["taskArn"].split(":")[3]  # arn:aws:ecs:REGION:…
    return subprocess.Popen(
        plugin_command(program, session, request, region), stdout=subprocess.DEVNULL
    )


def wait_until_served(url: str, is_alive: Callable[[], bool]) -> None:
    """Return when the page answers; raises if the tunnel ends first."""
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until and is_alive():
        try:
            with urllib.request.urlopen(url, timeout=LOOK_EVERY_S):
                return
        except (URLError, OSError):
            time.sleep(LOOK_EVERY_S)
    raise LoadTestError(f"the web interface does not answer at {url}; see the log of the master")
