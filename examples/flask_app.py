"""A Flask service: every key has its limit, and a report costs the kilobytes that were sent.

ZAEL_KEY_SECRET=change-me gunicorn examples.flask_app:app --workers 2 --preload
"""

import atexit
import os
from collections.abc import Iterator

from flask import Flask, Response, request

from zae_limiter import Limit, SyncRateLimiter, web
from zae_limiter.web import WebOutcome, WebRequest

LIMITS = [Limit.per_hour("rph", 10), Limit.per_hour("kilobytes", 100)]

limiter = SyncRateLimiter(url=os.environ.get("ZAEL_URL", "sqlite:///limits.db"))
# Stores limits where there are none: a restart keeps what an operator has set.
limiter.set_resource_defaults("flask", LIMITS, if_missing=True)
atexit.register(limiter.close)  # WSGI servers do not tell an application that they end

app = Flask(__name__)


@app.get("/")
def index() -> dict[str, str]:
    return {"hello": "world"}


@app.get("/health")
def health() -> dict[str, bool]:
    return {"ok": True}


@app.get("/report")
def report() -> Response:
    lines = int(request.args.get("lines", 100))

    def body() -> Iterator[str]:
        for number in range(lines):
            yield f"{number:>99}\n"

    return Response(body(), mimetype="text/plain")


def cost_after(request: WebRequest, outcome: WebOutcome) -> dict[str, int] | None:
    """Charge the kilobytes that were really sent, also to a client that hangs up."""
    if request.path == "/report":
        return {"kilobytes": -(-outcome.body_bytes // 1_000)}
    return None


web.init_flask(
    app,
    limiter,
    key=web.hashed_header("x-api-key"),
    resource="flask",
    cost={"rph": 1},
    cost_after=cost_after,
    skip=lambda request: request.path == "/health",
)
