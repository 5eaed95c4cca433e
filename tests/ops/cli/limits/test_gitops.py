"""The example of a pipeline: its commands exist, and do on a store what its page says."""

import shlex
from pathlib import Path

import click
import pytest
import yaml

from zae_limiter import Limit
from zae_limiter_ops.cli.app import app

FOLDER = Path(__file__).parents[4] / "examples" / "gitops"
PAGE = Path(__file__).parents[4] / "docs/operations/gitops.md"
WORKFLOW = yaml.safe_load((FOLDER / "limits.yml").read_text(encoding="utf-8"))


def command_lines():
    """Yield the words of each of our commands in the workflow and on the page."""
    runs = [step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    texts = [line for run in runs for line in run.splitlines()]
    texts += PAGE.read_text(encoding="utf-8").splitlines()
    for text in texts:
        if "zae-limiter " in text:
            line = text.partition("zae-limiter ")[2].replace("`", "#").replace(";", " #")
            words = shlex.split(line.partition(" > ")[0], comments=True)
            if words and words[0] in ("limits", "deploy"):
                yield pytest.param(words, id=" ".join(words))


@pytest.mark.parametrize("words", list(command_lines()))
def test_its_commands_can_be_parsed(words):
    command, *rest = words
    parsed = app.get_command(click.Context(app), command)
    if isinstance(parsed, click.Group):
        command, *rest = rest
        parsed = parsed.get_command(click.Context(parsed), command)
    parsed.make_context(command, rest)


def test_a_pull_request_plans_a_merge_applies_and_the_night_finds_drift(shell):
    shell("namespace", "register", "default")
    files = ("-f", FOLDER / "limits")
    assert "the manifest is valid" in shell.run("limits", "validate", *files).out
    assert shell.run("limits", "plan", *files, "--detailed-exitcode").code == 3
    shell("limits", "apply", *files, "--yes")
    assert shell.run("limits", "plan", *files, "--detailed-exitcode").code == 0
    assert shell.run("limits", "diff", *files, "--direct", "--detailed-exitcode").code == 0
    shell("resource", "set-defaults", "gpt-4", "-l", str(Limit.per_minute("rpm", 9)))
    night = shell.run("limits", "diff", *files, "--direct", "--detailed-exitcode")
    assert (night.code, "resource gpt-4: changed by hand" in night.out) == (3, True)


def test_each_event_has_its_job():
    jobs = {name: job["if"] for name, job in WORKFLOW["jobs"].items()}
    assert jobs == {
        "plan": "github.event_name == 'pull_request'",
        "apply": "github.event_name == 'push'",
        "drift": "github.event_name == 'schedule'",
    }
    events = WORKFLOW[True]  # YAML reads "on" as true
    assert set(events) == {"pull_request", "push", "schedule"}
