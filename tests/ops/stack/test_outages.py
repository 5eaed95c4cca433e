"""Commands end within seconds when nothing answers, and name the endpoint."""

import shlex
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.terminal import run
from tests.ops.stack.test_where_requests_go import COMMANDS

WITHIN_S = 5
# They need no store, or end for another reason before they ask it; a page is served anyway.
WITHOUT_STORE = {"limits cfn-template", "loadtest ui"}
# One for each way to the store and to the control plane; the long form takes all commands.
MAIN = (
    *("status", "check", "deploy", "list", "delete", "upgrade", "limits apply", "audit replay"),
    *("system get-defaults", "entity set-mode", "demo", "loadtest run"),
)
OTHERS = tuple(name for name in COMMANDS if name not in {*MAIN, *WITHOUT_STORE})
AT_ONCE = 4  # each of them waits for three seconds


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
def words(tmp_path):
    """Return the words of a command on a stack, with files that it needs."""
    manifest = tmp_path / "limits.yaml"
    manifest.write_text("system: {limits: {rpm: 5}}")
    (tmp_path / "locustfile.py").write_text("")

    def of(name, url, *more):
        arguments = COMMANDS[name].format(file=manifest, folder=tmp_path, namespace_id="abcdefgh")
        which = [] if name in ("list", "loadtest list") else ["--name", "my-app"]
        place = ["--region", "us-east-1", "--endpoint-url", url]
        return [*name.split(), *shlex.split(arguments), *more, *which, *place]

    return of


@pytest.fixture
def commands_end_soon(words):
    """Run commands in processes, several at once; each ends soon, and names the endpoint."""

    def one(name, url):
        with Stopwatch() as watch:
            ran = run(*words(name, url), AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
        assert ran.returncode == 1, (name, ran)
        assert url.partition("//")[2] in ran.stderr, (name, ran)
        assert watch.within(WITHIN_S), (name, watch)

    def all_of(names, url):
        run("--version")  # the process that they are forked from has imported everything then
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: one(name, url), names))

    return all_of


@pytest.mark.parametrize(
    "names", [MAIN, pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["main", "others"]
)
def test_commands_end_soon_when_nothing_answers(commands_end_soon, black_hole, names):
    commands_end_soon(names, black_hole)


@pytest.mark.parametrize("name", ["status", "check", "system get-defaults", "limits plan"])
def test_a_command_ends_soon_when_connections_are_refused(words, capsys, nobody, name):
    ends_soon(CommandLine(capsys, ""), words(name, nobody), nobody)


@pytest.mark.parametrize("name", ["status", "check", "system get-defaults", "limits plan"])
def test_a_command_ends_soon_when_the_name_is_unknown(words, capsys, name):
    nowhere = "http://no-such-host.invalid:8000"
    ends_soon(CommandLine(capsys, ""), words(name, nowhere), nowhere)


def test_an_apply_to_the_table_itself_ends_soon_when_nothing_answers(words, capsys, black_hole):
    ends_soon(CommandLine(capsys, ""), words("limits apply", black_hole, "--direct"), black_hole)


def ends_soon(line, words, url):
    with Stopwatch() as watch:
        ran = line(*words)
    assert ran.code == 1
    assert url.partition("//")[2] in ran.err, ran.err
    assert watch.within(WITHIN_S), watch


def test_the_report_on_a_stack_ends_soon_when_aws_does_not_answer(capsys, black_hole, monkeypatch):
    """Every service has a host of its own, and a proxy that leads nowhere is before all of them."""
    monkeypatch.setenv("HTTPS_PROXY", black_hole)
    with Stopwatch() as watch:
        ran = CommandLine(capsys, "")("status", "--name", "my-app", "--region", "eu-west-1")
    assert ran.code == 1
    assert "cloudformation does not answer at region eu-west-1" in ran.err
    assert "dynamodb was not asked" in ran.err
    assert watch.within(WITHIN_S), watch
