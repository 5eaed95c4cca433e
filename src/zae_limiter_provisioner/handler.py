"""The entry point of the function: payloads of the command line, and requests of CloudFormation.

Environment: ``TABLE_NAME``. A payload is ``{"action": "plan" | "apply" | "diff", "manifest": {…}}``
with ``namespace``, ``principal`` and ``revision`` (of the plan that was approved) where needed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter_provisioner import actions

if TYPE_CHECKING:
    from zae_limiter_provisioner.custom_resource import ResourceOutcome, ResourceRequest

TABLE = "TABLE_NAME"
DEFAULT_TIME_S = 60.0  # where the context does not tell how much time is left
BATCH_S = 15.0  # kept for the batch in progress, which takes up to 10 s with its retries
ANSWER_S = 5.0  # kept for answering CloudFormation, whatever the rest does


def handler(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Answer a payload, or a request of CloudFormation, with a document."""
    if "RequestType" in event and "ResponseURL" in event:
        return on_event(event, context)
    return actions.answer(event, os.environ[TABLE], _deadline(context, BATCH_S))


def on_event(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Carry out a request about ``Custom::ZaeLimiterLimits``; it is always answered.

    The work is done in a thread: if it does not end in time, the stack is told so. Without an
    answer CloudFormation would wait for an hour.
    """
    from zae_limiter_provisioner import custom_resource  # payloads do without it

    request = custom_resource.ResourceRequest(event, os.environ.get(TABLE, ""))
    until, batches_until = _deadline(context, ANSWER_S), _deadline(context, BATCH_S)
    outcomes: list[ResourceOutcome] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(_carried_out(request, batches_until)), daemon=True
    )
    thread.start()
    thread.join(max(until - time.monotonic(), 0))
    outcome = outcomes[0] if outcomes else request.failed("it did not end in time; run it again")
    answer = request.answer(outcome)
    _log("INFO" if outcome.succeeded else "ERROR", "CloudFormation is answered", answer)
    custom_resource.send(request.response_url, answer)
    return answer


def _carried_out(request: ResourceRequest, until: float) -> ResourceOutcome:
    try:
        return request.carry_out(until)
    except Exception as error:  # noqa: BLE001 - whatever it is, the stack must not hang
        return request.failed(str(error) or type(error).__name__)


def _deadline(context: Any, reserve_s: float) -> float:
    """Return the moment, on the monotonic clock, at which only the reserve is left."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    left_s = DEFAULT_TIME_S if remaining is None else remaining() / 1000
    return time.monotonic() + max(left_s - reserve_s, left_s / 2)


def _log(level: str, message: str, fields: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"level": level, "message": message, **fields}) + "\n")
