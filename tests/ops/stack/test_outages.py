"""Commands end within seconds when nothing answers, and name the endpoint."""

import shlex
import socket

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.inprocess import CommandLine
from tests.ops.stack.test_where_requests_go import COMMANDS

WITHIN_S = 5
# They need no store, or end for another reason before they ask it; a page is served anyway.
WITHOUT_STORE = {"limits cfn-template", "loadtest ui"}
# One for each way to the store and to the control plane; the long form takes all commands.
MAIN = {
    *("status", "check", "deploy", "list", "delete", "upgrade", "limits apply", "audit replay"),
    *("system get-defaults", "entity set-mode", "demo", "loadtest run"),
}
ASKING = [
    pytest.param(name, marks=() if name in MAIN else pytest.mark.slow)
    for name in COMMANDS
    if name not in WITHOUT_STORE
]


@pytest.fixture
def black_hole():
    """The URL of a socket that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def nobody():
    """The URL of a port at which connections are refused."""
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{placeholder.getsockname()[1]}"


@pytest.fixture
def run(capsys, tmp_path):
    manifest = tmp_path / "limits.yaml"
    manifest.write_text("system: {limits: {rpm: 5}}")
    (tmp_path / "locustfile.py").write_text("")
    line = CommandLine(capsys, "")

    def command(name, url):
        arguments = COMMANDS[name].format(file=manifest, folder=tmp_path, namespace_id="abcdefgh")
        words = [*name.split(), *shlex.split(arguments)]
        which = [] if name in ("list", "loadtest list") else ["--name", "my-app"]
        return line(*words, *which, "--region", "us-east-1", "--endpoint-url", url)

    return command


def ends_soon(run, name, url):
    with Stopwatch() as watch:
        ran = run(name, url)
    assert ran.code == 1
    assert url.partition("//")[2] in ran.err, ran.err
    assert watch.within(WITHIN_S), watch


@pytest.mark.parametrize("name", ASKING)
def test_a_command_ends_soon_when_nothing_answers(run, black_hole, name):
    ends_soon(run, name, black_hole)


def test_an_apply_to_the_table_itself_ends_soon_when_nothing_answers(run, black_hole, monkeypatch):
    monkeypatch.setitem(COMMANDS, "limits apply", "-f {file} --yes --direct")
    ends_soon(run, "limits apply", black_hole)


@pytest.mark.parametrize("name", ["status", "check", "system get-defaults", "limits plan"])
def test_a_command_ends_soon_when_connections_are_refused(run, nobody, name):
    ends_soon(run, name, nobody)


@pytest.mark.parametrize("name", ["status", "check", "system get-defaults", "limits plan"])
def test_a_command_ends_soon_when_the_name_is_unknown(run, name):
    ends_soon(run, name, "http://no-such-host.invalid:8000")


def test_the_report_on_a_stack_ends_soon_when_aws_does_not_answer(capsys, black_hole, monkeypatch):
    """Every service has a host of its own, and a proxy that leads nowhere is before all of them."""
    monkeypatch.setenv("HTTPS_PROXY", black_hole)
    with Stopwatch() as watch:
        ran = CommandLine(capsys, "")("status", "--name", "my-app", "--region", "eu-west-1")
    assert ran.code == 1
    assert "cloudformation does not answer at region eu-west-1" in ran.err
    assert "dynamodb was not asked" in ran.err
    assert watch.within(WITHIN_S), watch
