"""Other servers: ministack for real, and what is not installed."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from tests.support.ministack import Ministack, find_program
from zae_limiter import SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table
from zae_limiter_ops.cli.local import commands
from zae_limiter_ops.local import PORT, LocalServerError, cache_folder, installs, service
from zae_limiter_ops.local.programs import MinistackProgram


def failing(folder, name, said):
    """Install a program that says something and fails."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    program.chmod(0o755)


def test_ministack_has_stacks_and_forgets_them(local, up, monkeypatch):
    monkeypatch.setenv("ZAEL_MINISTACK", str(find_program()))
    server = up("--engine", "ministack", "--name", "my-app")
    assert (server["state"], server["stacks"]) == ("running", ["my-app"])
    assert server["data"] is None
    for name, value in local("env", "--output", "json").json.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    with SyncRepository.open() as repository:
        assert [each.name for each in repository.list_namespaces()] == ["default"]
    assert up()["started"] is False
    assert local("down", "--output", "json").json["kept"] is None
    again = up("--engine", "ministack")
    assert (again["started"], again["stacks"]) == (True, [])


def test_the_version_of_ministack_is_the_one_that_is_pinned():
    pins = dict(
        line.split("==") for line in installs.MINISTACK_PINS.read_text().splitlines() if line
    )
    program = MinistackProgram(find_program(), "")
    assert program.version() == pins["ministack"]


def test_ministack_computes_with_the_38_digits_of_dynamodb():
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    update = {
        "Key": key,
        "UpdateExpression": "SET a = a + :one ADD b :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
        "ReturnValues": "ALL_NEW",
    }
    with Ministack() as server, closing(DynamoClient("digits", endpoint_url=server.url)) as client:
        make_table(client, stream=False)
        client.call("PutItem", {"Item": {**key, "a": {"N": "9" * 37}, "b": {"N": "-1" + "0" * 34}}})
        stored = client.call("UpdateItem", update)["Attributes"]
    assert stored["a"]["N"] == "1" + "0" * 37
    assert stored["b"]["N"] == "-" + "9" * 34


# --- what is not installed -------------------------------------------------------------------


def test_without_npm_a_line_says_how_to_get_the_server(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(LocalServerError) as caught:
        installs.fetch_dynoxide(pytest.fail)
    for way in ("install Node.js", "ZAEL_DYNOXIDE=/path", "--engine ministack"):
        assert way in str(caught.value)


def test_a_fetch_that_fails_says_why_and_leaves_nothing(home, monkeypatch):
    bin_folder = home / "bin"
    bin_folder.mkdir()
    failing(bin_folder, "npm", "ENOTFOUND registry.npmjs.org")
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    steps = []
    with pytest.raises(LocalServerError, match=r"npm failed \(ENOTFOUND registry"):
        installs.fetch_dynoxide(steps.append)
    assert "through npm into" in steps[0]
    assert [path.name for path in cache_folder().iterdir()] == ["install.lock"]


def test_a_variable_that_names_no_program_is_an_error(local, monkeypatch, home):
    monkeypatch.setenv("ZAEL_DYNOXIDE", str(home))
    assert f"ZAEL_DYNOXIDE={home} is not a program" in local("up").error(1)


def test_a_program_that_does_not_run_here_is_an_error(local, monkeypatch, home, port):
    failing(home, "dynoxide", "wrong architecture")
    monkeypatch.setenv("ZAEL_DYNOXIDE", str(home / "dynoxide"))
    assert "does not run here" in local("up", "--port", port).error(1)


def test_a_server_that_ends_at_once_is_an_error_with_its_words(local, monkeypatch, home, port):
    program = home / "dynoxide"
    program.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo dynoxide 9.9.9 && exit\necho no space left\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("ZAEL_DYNOXIDE", str(program))
    assert "dynoxide ended: no space left" in local("up", "--port", port).error(1)
    assert local("down", "--output", "json").json["stopped"] is False


def test_help_needs_none_of_it():
    code = (
        "import sys; sys.argv = ['zae-limiter', 'local', 'up', '--help']\n"
        "from zae_limiter_ops.cli import main; main()\n"
        "sys.exit(' '.join(name for name in sys.modules if name.startswith("
        "('botocore', 'asyncio', 'rich', 'zae_limiter_ops.local', 'zae_limiter._sync'))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_offers_what_there_is():
    assert (commands.ENGINES, commands.PORT) == (service.ENGINES, PORT)
