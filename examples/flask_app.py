"""A Flask service: every key has its limit, and a report costs what it was long.

flask --app examples.flask_app:make_app run
"""

import os
from collections.abc import Iterator

from flask import Flask, Response, request

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, web
from zae_limiter.web import WebOutcome, WebRequest


def cost_after(request: WebRequest, outcome: WebOutcome) -> dict[str, int] | None:
    """Charge the kilobytes that were really sent, also to a client that hangs up."""
    if request.path == "/report":
        return {"kilobytes": -(-outcome.body_bytes // 1_000)}
    return None


def create_app() -> Flask:
    """Open the store; Flask calls it once for the process."""
    url = os.environ.get("ZAEL_URL", "sqlite:///flask.db")
    return make_app(SyncRateLimiter(repository=SyncRepository.open(url=url)))


def make_app(limiter: SyncRateLimiter) -> Flask:
    limiter.set_resource_defaults(
        "api", [Limit.per_minute("rpm", 10), Limit.per_minute("kilobytes", 100)]
    )
    app = Flask(__name__)

    @app.get("/")
    def index() -> dict[str, str]:
        return {"hello": "world"}

    @app.get("/report")
    def report() -> Response:
        lines = int(request.args.get("lines", 100))

        def body() -> Iterator[str]:
            for number in range(lines):
                yield f"{number:>99}\n"

        return Response(body(), mimetype="text/plain")

    web.init_flask(app, limiter, key=web.header("x-api-key"), cost_after=cost_after)
    return app
