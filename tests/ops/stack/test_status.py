"""The report on a stack: its newest error, and the units of table and indexes."""

import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._sync.infra.deployment import Deployment
from zae_limiter_ops._sync.infra.status import StatusReader
from zae_limiter_ops.infra import names


@pytest.fixture
def deployed(deployment):
    deployment.deploy(StackOptions(enable_aggregator=False))
    return deployment


def last_error(command):
    (function,) = command("status", "--output", "json").json["details"]["functions"]
    return function["last_error"]


def test_the_newest_of_many_errors_is_reported(deployed, command):
    control = deployed.manager.control
    group = names.log_group(names.provisioner_function(deployed.name))
    stream = {"logGroupName": group, "logStreamName": "made-by-the-test"}
    control.call("logs", "create_log_stream", **stream)
    now_ms = int(time.time() * 1000)

    def log(minutes_ago, text):
        at = now_ms - int(minutes_ago * 60_000)
        # The local control plane wants all terms of a pattern, where CloudWatch wants one of them.
        line = {"timestamp": at, "message": f'an ERROR, a Traceback, "Task timed out": {text}'}
        control.call("logs", "put_log_events", **stream, logEvents=[line])

    assert last_error(command) is None
    log(1430, "of yesterday")
    assert "of yesterday" in last_error(command)
    for minutes_ago in range(50, 20, -10):
        log(minutes_ago, f"{minutes_ago} minutes ago")
    assert "30 minutes ago" in last_error(command)
    log(1, "of this minute")
    assert "of this minute" in last_error(command)


class Pages(ThreadingHTTPServer):
    """CloudWatch Logs with much to search: some pages are empty although others follow."""

    daemon_threads = True
    pages = ((), ("old",), (), (), ("older", "new"), ())

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Paging)
        self.asked = 0


class _Paging(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = int(request.get("nextToken", 0))
        self.server.asked += 1
        ages_s = {"old": 50, "older": 70, "new": 10}
        events = [
            {"timestamp": int((time.time() - ages_s[name]) * 1000), "message": name}
            for name in self.server.pages[number]
        ]
        answer = {"events": events}
        if number + 1 < len(self.server.pages):
            answer["nextToken"] = str(number + 1)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def test_empty_pages_of_the_log_are_passed():
    with Pages() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        deployment = Deployment("my-app", "us-east-1", url)
        try:
            reader = StatusReader(deployment)
            found = reader._last_error("my-app-aggregator")  # noqa: SLF001 - other calls fail here
        finally:
            deployment.close()
            server.shutdown()
            thread.join()
    assert found == "new"
    assert server.asked == len(Pages.pages)


def test_the_units_of_the_last_day_contain_the_indexes(deployed, command):
    """CloudWatch has a metric for the table, and one for each index; AWS bills their sum."""
    before = command("status", "--output", "json").json["details"]["last_day"]["write_units"]
    for index, units in ((None, 1000), ("GSI2", 200), ("GSI4", 30)):
        dimensions = {"TableName": deployed.name}
        if index is not None:
            dimensions["GlobalSecondaryIndexName"] = index
        deployed.manager.control.call(
            "cloudwatch",
            "put_metric_data",
            Namespace="AWS/DynamoDB",
            MetricData=[
                {
                    "MetricName": "ConsumedWriteCapacityUnits",
                    "Dimensions": [{"Name": n, "Value": v} for n, v in dimensions.items()],
                    "Timestamp": datetime.now(UTC),
                    "Value": units,
                }
            ],
        )
    after = command("status", "--output", "json").json["details"]["last_day"]["write_units"]
    assert after - before == 1230
