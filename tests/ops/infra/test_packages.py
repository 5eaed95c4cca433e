"""Function packages: small, always the same, and complete without anything else."""

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from zae_limiter_ops.infra import packages

PACKAGES = {
    "aggregator": packages.aggregator_package,
    "provisioner": packages.provisioner_package,
}


def interpreters():
    """Return this Python, and pyenv's Pythons of the versions that Lambda offers."""
    versions = Path.home() / ".pyenv" / "versions"
    others = [
        path / "bin/python"
        for minor in ("3.11", "3.12", "3.13")
        for path in sorted(versions.glob(f"{minor}.*"))
    ]
    found = [path for path in others if path.exists()]
    older = [pytest.param(path, marks=pytest.mark.slow) for path in found[:-1]]
    return [Path(sys.executable), *older, *found[-1:]]


@pytest.fixture(scope="module", params=PACKAGES)
def function(request):
    return request.param


@pytest.fixture(scope="module")
def file(function, tmp_path_factory):
    file = tmp_path_factory.mktemp("package") / "lambda.zip"
    file.write_bytes(PACKAGES[function]().content)
    return file


def run(python, file, code):
    """Run code in a bare interpreter that has nothing but the zip."""
    text = f"import sys; sys.path.insert(0, {str(file)!r})\n{code}"
    return subprocess.run(
        [python, "-I", "-S", "-c", text], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_same_sources_make_the_same_bytes(function):
    first = PACKAGES[function]()
    packages.build.cache_clear()
    assert PACKAGES[function]() == first
    with zipfile.ZipFile(io.BytesIO(PACKAGES[function]().content)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.namelist()[0] == "index.py"


def test_it_has_no_command_and_no_foreign_library(function):
    with zipfile.ZipFile(io.BytesIO(PACKAGES[function]().content)) as archive:
        names = archive.namelist()
    assert not [name for name in names if "/cli/" in name or "/_async/" in name]
    assert {name.split("/")[0] for name in names} == {
        "index.py",
        "zae_limiter",
        "zae_limiter_ops",
        f"zae_limiter_{function}",
    }


# An event for each function that needs no call to the table, and a part of its answer.
CALLS = {
    "aggregator": ("{'Records': []}", "{'batchItemFailures': []}"),
    "provisioner": (
        "{'action': 'plan', 'manifest': {'system': {'limits': {'rpm': 0}}}}",
        "must be greater than zero",
    ),
}
ENVIRONMENT = (
    "import os, index\n"
    "os.environ.update(TABLE_NAME='table', AWS_REGION='us-east-1', AWS_ACCESS_KEY_ID='k',\n"
    "                  AWS_SECRET_ACCESS_KEY='s')\n"
)


@pytest.mark.each_value_once
@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.parts[-3])
def test_it_runs_in_a_bare_interpreter(function, file, python):
    event, answer = CALLS[function]
    call = f"print(index.handler({event}, None), file=sys.stderr)\n"
    found = run(python, file, ENVIRONMENT + call)
    assert found.returncode == 0, found.stderr
    assert answer in found.stderr
    assert found.stderr.count("\n") == 1


def test_the_provisioner_calls_dynamodb_without_botocore(tmp_path):
    """The call fails because nothing listens, after it has imported all its modules."""
    file = tmp_path / "lambda.zip"
    file.write_bytes(PACKAGES["provisioner"]().content)
    call = (
        "os.environ['AWS_ENDPOINT_URL'] = 'http://127.0.0.1:9'\n"
        "payload = {'action': 'apply', 'manifest': {'entities': {'a': {}}}}\n"
        "print(index.handler(payload, None), file=sys.stderr)\n"
        "assert not {'boto3', 'botocore', 'yaml', 'click', 'asyncio'} & {*sys.modules}\n"
    )
    found = run(sys.executable, file, ENVIRONMENT + call)
    assert found.returncode == 0, found.stderr
    assert "no connection to http://127.0.0.1:9" in found.stderr


def test_every_module_in_it_can_be_imported(file):
    with zipfile.ZipFile(file) as archive:
        modules = [
            name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for name in archive.namelist()
        ]
    found = run(
        sys.executable, file, f"import importlib\nfor m in {modules}: importlib.import_module(m)"
    )
    assert found.returncode == 0, found.stderr


def test_what_a_module_imports_from_another_is_there(file):
    """Imports inside functions count as well."""
    trees = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            trees[module] = ast.parse(archive.read(name))
    imported = [
        (each.module, alias.name)
        for tree in trees.values()
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and each.module in trees
        for alias in each.names
    ]
    bound = {module: names_in(trees[module]) for module in {module for module, _ in imported}}
    missing = {
        (module, name)
        for module, name in imported
        if f"{module}.{name}" not in trees and name not in bound[module]
    }
    assert imported
    assert not missing


def names_in(module):
    """Return all names that a module binds; lazily imported names are keys of a mapping."""
    nodes = list(ast.walk(module))
    defined = {
        each.name
        for each in nodes
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assigned = {
        each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    imports = [each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)]
    known = {alias.asname or alias.name for each in imports for alias in each.names}
    mappings = [each for each in nodes if isinstance(each, ast.Dict)]
    lazy = {ast.unparse(key).strip("'") for each in mappings for key in each.keys if key}
    return defined | assigned | known | lazy


@pytest.mark.parametrize("python", interpreters()[1:], ids=lambda path: path.parts[-3])
def test_every_python_makes_the_same_bytes(python):
    """The package does not depend on the Python of the machine that deploys."""
    if python.resolve() == Path(sys.executable).resolve():
        return
    sources = str(Path(packages.__file__).parents[2])
    program = (
        f"import sys; sys.path.insert(0, {sources!r})\n"
        "from zae_limiter_ops.infra.packages import aggregator_package, provisioner_package\n"
        "print(aggregator_package().sha256, provisioner_package().sha256)"
    )
    made = subprocess.run([python, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.split() == [package().sha256 for package in PACKAGES.values()]


# The functions take credentials from their environment, and have neither commands nor YAML.
NEVER = {"asyncio", "botocore", "click", "rich", "sqlite3", "yaml"}


def test_a_cold_start_imports_no_more_than_it_needs(function, file):
    found = run(sys.executable, file, "import index\nprint(*sys.modules, file=sys.stderr)")
    assert not set(found.stderr.split()) & NEVER
