"""The wheels, as users build and install them: by pip, with the versions of constraints.txt.

Everything runs in folders without the sources, on every supported Python that is installed.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from functools import cache
from pathlib import Path

import pytest

from hatch_build import held_version

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROGRAM = """
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
with SyncRepository.open(url="sqlite:///limits.db") as repo:
    limiter = SyncRateLimiter(repository=repo)
    limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    with limiter.acquire("key", "api", {"rpm": 1}):
        pass
    print(limiter.available("key", "api"))
"""
# What reads files of the package, and what is imported by name only.
WHOLE_PACKAGE = """
import importlib.metadata, json, sys
from importlib.resources import files
import zae_limiter, zae_limiter_aggregator.handler, zae_limiter_provisioner.handler
from zae_limiter_ops.infra import packages, template
missing = [name for name in zae_limiter.__all__ if getattr(zae_limiter, name) is None]
assert not missing, missing
assert json.loads(files("zae_limiter_ops.manifest").joinpath("schema.json").read_text())
pins = files("zae_limiter_ops.local").joinpath("ministack-requirements.txt").read_text()
assert "ministack==" in pins
page = files("zae_limiter_dashboard")
assert "script" in page.joinpath("templates/base.html").read_text()
assert page.joinpath("static/vendor/htmx.min.js").read_bytes()
assert page.joinpath("static/vendor/uPlot.LICENSE").read_text()
assert packages.aggregator_package().content and packages.provisioner_package().content
assert template.template()["Resources"]
assert importlib.metadata.version("zae-limiter") == zae_limiter.__version__
print(zae_limiter.__file__)
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
    """Run the pip of this environment for another one, which then needs none."""
    own = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", python)
    return run(*own, *arguments)


def build(project, folder, *options):
    """Build a wheel with the tools of this environment, unless ``options`` say otherwise."""
    options = options or ("--no-build-isolation",)
    pip(sys.executable, "wheel", "--no-deps", *options, "--wheel-dir", folder, project)
    (built,) = folder.glob("*.whl")
    return built


def new_environment(place, python=sys.executable):
    """The Python of an empty environment."""
    run(python, "-m", "venv", "--without-pip", place)
    return place / "bin" / "python"


@cache
def interpreter(version):
    """A Python of this version; None if none is installed, or if its shim leads nowhere."""
    name = f"python{version}"
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    for candidate in filter(None, (shutil.which(name), *managed)):
        asked = [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def top_level(wheel):
    """What a wheel puts into site-packages, its metadata aside."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel):
    (name,) = (name for name in contents(wheel) if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(contents(wheel)[name].decode())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """As users build it: what the build requires is fetched."""
    return build(ROOT, tmp_path_factory.mktemp("package"), "--use-pep517")


@pytest.fixture(scope="module")
def contract_wheel(tmp_path_factory):
    return build(ROOT / "contract", tmp_path_factory.mktemp("contract"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module", params=PYTHONS)
def environment(request, wheel, tmp_path_factory):
    """The programs of an environment in which only the wheel and its dependencies are installed."""
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"Python {request.param} is not installed")
    python = new_environment(tmp_path_factory.mktemp("environment"), found)
    pip(python, "install", "-c", ROOT / "constraints.txt", wheel)
    return python.parent


def test_the_wheel_contains_the_package_and_nothing_else(wheel):
    assert top_level(wheel) == {
        "zae_limiter",
        "zae_limiter_aggregator",
        "zae_limiter_dashboard",
        "zae_limiter_lab",
        "zae_limiter_ops",
        "zae_limiter_provisioner",
        "zae_limiter_service",
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "ls-files", "src", cwd=ROOT).split()
    assert not {name.removeprefix("src/") for name in tracked} - names
    assert "zae_limiter/py.typed" in names
    assert "zae_limiter_ops/manifest/schema.json" in names
    assert "zae_limiter_ops/local/ministack-requirements.txt" in names
    assert "zae_limiter_lab/loadtest/worker.py" in names
    assert "zae_limiter/_sync/limiter.py" in names
    assert "zae_limiter_dashboard/templates/overview.html" in names
    assert "zae_limiter_dashboard/static/app.js" in names
    assert not [name for name in names if "contract" in name or Path(name).match("test_*")]


def test_the_wheel_of_the_sdist_is_the_same(sdist, wheel, tmp_path):
    """An sdist has no git: it has the version that it was built with."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    assert not (sources / ".git").exists()
    assert {"README.md", "LICENSE", "Makefile", "tests", "docs"} <= {
        path.name for path in sources.iterdir()
    }
    (tmp_path / "built").mkdir()
    rebuilt = build(sources, tmp_path / "built")
    assert rebuilt.name == wheel.name
    assert contents(rebuilt) == contents(wheel)


def test_the_metadata_says_what_the_project_is(wheel):
    metadata = metadata_of(wheel)
    assert metadata["Version"] == wheel.name.split("-")[1]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# zae-limiter" in metadata.get_payload()
    assert metadata["License-Expression"] == "MIT"
    statuses = [each for each in metadata.get_all("Classifier") if each.startswith("Development")]
    assert len(statuses) == 1


EXTRAS = {
    "plot": {"plotext"},
    "report": {"matplotlib"},
    "otel": {"opentelemetry-api"},
    "cdk": {"aws-cdk-lib", "constructs"},
    "local": set(),
    "lambda": set(),
    "bench": {"gevent", "locust"},
    "dashboard": {"jinja2", "starlette", "uvicorn"},
    "service": {"httptools", "starlette", "uvicorn", "uvloop"},
    "envoy": {"grpcio", "httptools", "starlette", "uvicorn", "uvloop", "xds-protos"},
    "docs": {"mkdocs-material", "mkdocstrings"},
    "peers": {"aiobotocore", "boto3", "limits", "pyrate-limiter", "redis", "throttled-py"},
}


def test_extras_install_what_they_name(wheel):
    from packaging.requirements import Requirement

    metadata = metadata_of(wheel)
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist")]

    def names(extra):
        return {
            each.name
            for each in requirements
            if (each.marker is None) == (not extra)
            and (each.marker is None or each.marker.evaluate({"extra": extra}))
        }

    assert names("") == {"botocore", "click", "pyyaml", "rich", "tzdata"}
    assert set(metadata.get_all("Provides-Extra")) == {*EXTRAS, "dev"}
    assert {extra: names(extra) for extra in EXTRAS} == EXTRAS
    assert set(PROJECT["optional-dependencies"]) == {*EXTRAS, "dev"}
    for part in ("bench", "otel", "plot", "report"):
        assert names("dev") >= EXTRAS[part]
    assert names("dev") >= {"hypothesis", "mypy", "pytest", "pytest-cov", "ruff", "git-cliff"}
    for part in ("cdk", "docs", "peers"):  # large, and needed by one command each
        assert not names("dev") & (EXTRAS[part] - {"boto3"})


def test_the_contract_wheel_contains_the_suite_and_nothing_else(contract_wheel):
    assert top_level(contract_wheel) == {"zae_limiter_contract"}
    names = zipfile.ZipFile(contract_wheel).namelist()
    assert "zae_limiter_contract/_async/engine.py" in names
    assert "zae_limiter_contract/_sync/engine.py" in names


def test_the_installed_package_limits(environment, tmp_path):
    assert run(environment / "python", "-c", PROGRAM, cwd=tmp_path).strip() == "{'rpm': 0}"


def test_the_installed_package_is_whole_and_not_the_checkout(environment, tmp_path):
    home = run(environment / "python", "-c", WHOLE_PACKAGE, cwd=tmp_path)
    assert Path(home.strip()).is_relative_to(environment.parent)


def test_the_installed_command_runs_the_demo(environment, tmp_path):
    command = ("demo", "--seconds", "0.5", "--url", "memory://", "--output", "json")
    report = json.loads(run(environment / "zae-limiter", *command, cwd=tmp_path))
    assert report["invariant"]["holds"] is True


def test_the_contract_suite_can_be_installed_beside_it(environment, contract_wheel, tmp_path):
    pip(environment / "python", "install", "-c", ROOT / "constraints.txt", contract_wheel)
    (tmp_path / "test_mine.py").write_text(ENGINE_TEST)
    assert "2 passed" in run(environment / "python", "-m", "pytest", "-q", cwd=tmp_path)


def test_a_shallow_clone_without_tags_is_installed_for_editing(tmp_path):
    """As ``make run`` does, with the build's own requirements fetched."""
    clone = tmp_path / "clone"
    run("git", "clone", "-q", "--depth", "1", "--no-tags", f"file://{ROOT}", clone)
    for name in ("hatch_build.py", "pyproject.toml"):  # as they are, committed or not
        shutil.copy(ROOT / name, clone)
    python = new_environment(tmp_path / "environment")
    pip(python, "install", "-c", ROOT / "constraints.txt", "-e", clone)
    code = "import zae_limiter, importlib.metadata as m; print(m.version('zae-limiter'))"
    assert run(python, "-c", code, cwd=tmp_path).strip() == held_version()
    assert held_version() in run(python.parent / "zae-limiter", "--version", cwd=tmp_path)
