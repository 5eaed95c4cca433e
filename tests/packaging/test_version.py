"""Where a version comes from: tags, or ``_version.py`` where there is no higher one."""

import subprocess

import pytest

import hatch_build
from hatch_build import HELD, ROOT, held_version, stamped, version, with_address

WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "tag.gpgSign=false")
LOWEST = "1.0.0rc1"


def git(folder, *words):
    subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "commit", "-q", "--allow-empty", "--no-verify", "-m", "feat: something")


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit that holds ``_version.py``."""
    held = tmp_path / HELD
    held.parent.mkdir(parents=True)
    held.write_text((ROOT / HELD).read_text())
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    return tmp_path


def test_without_git_it_is_that_of_the_file(tmp_path):
    held = tmp_path / HELD
    held.parent.mkdir(parents=True)
    held.write_text('__version__ = "7.8.9"\n')
    assert version(tmp_path) == "7.8.9"


def test_without_tags_it_is_that_of_the_file(checkout):
    assert version(checkout) == held_version()
    git(checkout, "tag", "deployed-9.0.0")
    git(checkout, "tag", "v9")
    assert version(checkout) == held_version()


def test_a_tag_is_the_version_of_its_commit(checkout):
    git(checkout, "tag", "v2.3.4")
    assert version(checkout) == "2.3.4"
    commit(checkout)
    assert version(checkout).startswith("2.3.5.dev1+g")


def test_the_highest_tag_of_a_commit_counts(checkout):
    for tag in ("v2.0.0rc9", "v2.0.0", "v2.0.0rc1", "v2.0.0rc10", "v2.0.x"):
        git(checkout, "tag", tag)
    assert version(checkout) == "2.0.0"


def test_an_older_tag_does_not_lower_it(checkout):
    git(checkout, "tag", "v0.9.0")
    assert version(checkout) == held_version()
    commit(checkout)
    assert version(checkout) == held_version()


def test_a_shallow_clone_without_tags_has_that_of_the_file(checkout, tmp_path_factory):
    git(checkout, "tag", "v2.3.4")
    commit(checkout)
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", "--depth", "1", f"file://{checkout}", "here")
    assert version(clone / "here") == held_version()


def test_without_the_program_git_it_is_that_of_the_file(checkout, monkeypatch):
    git(checkout, "tag", "v2.3.4")
    monkeypatch.setenv("PATH", str(checkout))
    assert version(checkout) == held_version()


def test_the_version_of_the_file_is_never_lower():
    assert hatch_build.Version(held_version()) >= hatch_build.Version(LOWEST)


def test_the_file_is_stamped_and_nothing_else_changes():
    text = (ROOT / HELD).read_text()
    changed = stamped(text, "3.2.1")
    values = {}
    exec(compile(changed, HELD, "exec"), values)
    assert values["__version__"] == "3.2.1"
    assert values["is_older"]("3.2.1rc1")
    assert changed.replace("3.2.1", held_version()) == text


def test_links_of_the_readme_lead_to_the_repository_if_it_is_known():
    text = "[a](docs/a.md#b) ![p](docs/p.svg) [w](https://w.example/) [here](#there)"
    assert with_address(text, "") == text
    assert with_address(text, "https://host/o/r") == (
        "[a](https://host/o/r/blob/HEAD/docs/a.md#b) ![p](https://host/o/r/raw/HEAD/docs/p.svg) "
        "[w](https://w.example/) [here](#there)"
    )
