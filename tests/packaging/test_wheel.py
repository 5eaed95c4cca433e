"""The wheels, as users build and install them: by pip, with the versions of constraints.txt."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
with SyncRepository.open(url="sqlite:///limits.db") as repo:
    limiter = SyncRateLimiter(repository=repo)
    limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    with limiter.acquire("key", "api", {"rpm": 1}):
        pass
    print(limiter.available("key", "api"))
"""
ENGINE_TEST = """
import pytest
from zae_limiter import BackendCapabilities
from zae_limiter_contract import EngineSpec
def test_the_installed_suite_opens_an_engine():
    assert EngineSpec("memory://", BackendCapabilities("mine", False, False, True, True)).url
def test_the_fixtures_are_there(zae_sync_rate_limiter):
    assert zae_sync_rate_limiter.is_available()
"""
# Neither the checkout nor the settings of this environment lead into the new one.
CLEAN = {
    name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ZAEL_URL")
}


def run(*command, **options):
    """The output of a command that must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env=CLEAN,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(python, *arguments):
    return run(python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def build(project, folder):
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", folder, project)
    (built,) = folder.glob("*.whl")
    return built


def top_level(wheel):
    """What a wheel puts into site-packages, its metadata aside."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def contract_wheel(tmp_path_factory):
    return build(ROOT / "contract", tmp_path_factory.mktemp("contract"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The programs of an environment in which only the wheel and its dependencies are installed."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    pip(place / "bin" / "python", "install", "-c", ROOT / "constraints.txt", wheel)
    return place / "bin"


def test_the_wheel_contains_the_package_and_nothing_else(wheel):
    assert top_level(wheel) == {
        "zae_limiter",
        "zae_limiter_aggregator",
        "zae_limiter_provisioner",
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert "zae_limiter/py.typed" in names
    assert "zae_limiter/manifest/schema.json" in names
    assert "zae_limiter_aggregator/handler.py" in names
    assert "zae_limiter_provisioner/handler.py" in names
    assert "zae_limiter/_sync/limiter.py" in names
    assert not [name for name in names if "contract" in name or "test_" in name]


def test_the_contract_wheel_contains_the_suite_and_nothing_else(contract_wheel):
    assert top_level(contract_wheel) == {"zae_limiter_contract"}
    names = zipfile.ZipFile(contract_wheel).namelist()
    assert "zae_limiter_contract/_async/engine.py" in names
    assert "zae_limiter_contract/_sync/engine.py" in names


def test_the_installed_package_limits(environment, tmp_path):
    assert run(environment / "python", "-c", PROGRAM, cwd=tmp_path).strip() == "{'rpm': 0}"


def test_the_installed_package_is_not_the_checkout(environment, tmp_path):
    found = run(
        environment / "python", "-c", "import zae_limiter as z; print(z.__file__)", cwd=tmp_path
    )
    assert Path(found.strip()).is_relative_to(environment.parent)


def test_the_installed_command_runs_the_demo(environment, tmp_path):
    command = ("demo", "--seconds", "0.5", "--url", "memory://", "--output", "json")
    report = json.loads(run(environment / "zae-limiter", *command, cwd=tmp_path))
    assert report["invariant"]["holds"] is True


def test_the_contract_suite_can_be_installed_beside_it(environment, contract_wheel, tmp_path):
    pip(environment / "python", "install", "-c", ROOT / "constraints.txt", contract_wheel)
    (tmp_path / "test_mine.py").write_text(ENGINE_TEST)
    assert "2 passed" in run(environment / "python", "-m", "pytest", "-q", cwd=tmp_path)
