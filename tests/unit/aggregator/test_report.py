"""Log lines and metrics, as CloudWatch reads them."""

import json
import time

from zae_limiter_aggregator.report import Log


def test_a_line_is_one_json_object():
    lines = []
    Log("r-1", lines.append).error("it\nfailed", error="ü", number=3)
    (line,) = lines
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "level": "ERROR",
        "message": "it\nfailed",
        "request_id": "r-1",
        "error": "ü",
        "number": 3,
    }


def test_metrics_have_the_embedded_form():
    """The specification requires that every named metric and dimension is a field of the root."""
    lines = []
    Log(output=lines.append).metrics({"Records": 5, "Lag": 1200}, Table="my-table")
    root = json.loads(lines[0])
    (definition,) = root["_aws"]["CloudWatchMetrics"]
    assert abs(root["_aws"]["Timestamp"] - time.time() * 1000) < 60_000
    assert definition["Namespace"] == "zae-limiter"
    assert definition["Dimensions"] == [["Table"]]
    assert definition["Metrics"] == [
        {"Name": "Records", "Unit": "Count"},
        {"Name": "Lag", "Unit": "Milliseconds"},
    ]
    assert (root["Records"], root["Lag"], root["Table"]) == (5, 1200, "my-table")


def test_lines_go_to_standard_output(capsys):
    Log().info("hello")
    assert json.loads(capsys.readouterr().out) == {"level": "INFO", "message": "hello"}
