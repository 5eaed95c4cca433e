"""The entry point of the function: payloads of the command line, and requests of CloudFormation.

Environment: ``TABLE_NAME``. A payload is ``{"action": "plan" | "apply" | "diff", "manifest": …}``.
Optional fields are ``namespace`` and ``principal``; for an apply also ``revision`` (of the approved
plan), ``allow_deletions``, ``wait_seconds`` (for another apply) and ``seconds``, after which the
apply stops between two batches. The answer of such an apply has the field ``unfinished``, whose
``revision`` continues it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from zae_limiter.clock import Deadline
from zae_limiter_provisioner import actions, custom_resource
from zae_limiter_provisioner.custom_resource import ResourceOutcome, ResourceRequest

TABLE = "TABLE_NAME"
DEFAULT_TIME_S = 60.0  # the remaining time if the context does not say it
BATCH_S = 15.0  # reserved for the batch in progress, which takes up to 10 s with its retries
ANSWER_S = 5.0  # reserved for the answer to CloudFormation
TOO_LATE = "the apply did not end in time; deploy the stack again to continue it"


def handler(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Answer a payload, or a request of CloudFormation, with a document."""
    if isinstance(event, Mapping) and "RequestType" in event and "ResponseURL" in event:
        return on_event(event, context)
    return actions.answer(event, os.environ[TABLE], _deadline(context, BATCH_S))


def on_event(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Execute a request about ``Custom::ZaeLimiterLimits`` and always answer it.

    The work is done in a thread, so that the function can still answer if the work takes too long.
    Without an answer CloudFormation would wait for an hour.
    """
    request = ResourceRequest(event, os.environ.get(TABLE, ""))
    answer_by, last_batch_by = _deadline(context, ANSWER_S), _deadline(context, BATCH_S)
    outcomes: list[ResourceOutcome] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(_outcome(request, last_batch_by)), daemon=True
    )
    thread.start()
    thread.join(max(answer_by.left(), 0))
    outcome = outcomes[0] if outcomes else ResourceOutcome(False, TOO_LATE)
    answer = request.answer(outcome)
    _log("INFO" if outcome.succeeded else "ERROR", "sending the answer to CloudFormation", answer)
    custom_resource.send(request.response_url, answer)
    return answer


def _outcome(request: ResourceRequest, deadline: Deadline) -> ResourceOutcome:
    try:
        return request.execute(deadline)
    except Exception as error:  # noqa: BLE001 - an unanswered request would block the stack
        return ResourceOutcome(False, str(error) or type(error).__name__)


def _deadline(context: Any, reserve_s: float) -> Deadline:
    """Return the moment from which only the reserve remains."""
    remaining_ms = getattr(context, "get_remaining_time_in_millis", None)
    remaining_s = DEFAULT_TIME_S if remaining_ms is None else remaining_ms() / 1000
    return Deadline(max(remaining_s - reserve_s, remaining_s / 2))


def _log(level: str, message: str, fields: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"level": level, "message": message, **fields}) + "\n")
