"""No line installs `zae-limiter` by its name: the package index has another product."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("docs", "src", "examples", "tools", "benchmarks", "contract", "proof")
FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile")
SUFFIXES = {".md", ".py", ".yml", ".yaml", ".toml", ".txt", ".sh", ".html", ".js", ".svg", ""}
INSTALLERS = re.compile(
    r"\b(?:pip[0-9.]*|pipx|uvx?|poetry|conda)\b[^\n|]*\b(?:install|add|run)\b(.*)"
)
BY_NAME = re.compile(r"(?<![\w./@:-])zae[-_]limiter(?![\w/-]|\.(?!\s|$))")
EXTRA_BY_NAME = re.compile(r"(?<![\w/])zae-limiter\[")


def wrong_lines(text):
    """Yield the lines that install by name, or name an extra without a path."""
    for line in text.splitlines():
        installs = INSTALLERS.search(line)
        if (installs and BY_NAME.search(installs[1])) or EXTRA_BY_NAME.search(line):
            yield line.strip()


def pages():
    """Yield the files that a reader may take a line from, as they are tracked."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PLACES, *FILES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix in SUFFIXES and path.is_file() and path.name != "pyproject.toml":
            yield path


def test_every_line_installs_from_a_checkout_or_a_wheel():
    wrong = {}
    for path in pages():
        found = list(wrong_lines(path.read_text(encoding="utf-8")))
        if found:
            wrong[str(path.relative_to(ROOT))] = found
    assert wrong == {}


def test_building_a_wheel_says_the_line_that_installs_it():
    commands = subprocess.run(
        ["make", "-n", "-o", ".venv/.dev-installed", "dist"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f'pip install \\"{ROOT}/$wheel[service]\\"' in commands


@pytest.mark.parametrize(
    "line",
    [
        "pip install zae-limiter",
        "`pip install 'zae-limiter[otel]'`, then:",
        "RUN pip install --no-cache-dir zae_limiter==1.0",
        "uv add zae-limiter",
        "python -m pip install --upgrade zae-limiter",
        "install the extra 'zae-limiter[service]'",
    ],
)
def test_a_line_that_installs_by_name_is_found(line):
    assert list(wrong_lines(line)) == [line]


@pytest.mark.parametrize(
    "line",
    [
        'pip install "/path/to/zae-limiter[service]"',
        "pip install /path/to/zae-limiter",
        "pip install '.[otel]'",
        "pip install dist/zae_limiter-1.0.0-py3-none-any.whl",
        "cd zae-limiter",
        "`zae-limiter local up` fetches them",
    ],
)
def test_a_line_with_a_path_is_right(line):
    assert list(wrong_lines(line)) == []
