"""How a build finds its version, its addresses and its readme.

A version comes from the tag of the commit. ``_version.py`` holds the version of a checkout, and is
the lower bound: it counts where there is no git, no tag, or only older ones. What is built carries
the version that was found in its own ``_version.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatch_vcs.version_source import VCSVersionSource
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent
HELD = "src/zae_limiter/_version.py"
_CONSTANT = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_DESCRIBE = ["git", "describe", "--dirty", "--tags", "--long", "--abbrev=10", "--match"]
_VERSION_TAGS = "v[0-9]*.[0-9]*.[0-9]*"  # other tags, such as those of a deployment, name none

# The address of the repository, which the release workflow knows: a fork has another one.
ADDRESS = "ZAEL_REPOSITORY_URL"
_RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?://|#)([^)]+)\)")


def version(root: Path = ROOT) -> str:
    """Return the version of the tag, or that of ``_version.py`` where this is not lower."""
    held = held_version(root)
    tagged = _tagged_version(root)
    return held if tagged is None or Version(tagged) <= Version(held) else tagged


def held_version(root: Path = ROOT) -> str:
    """Return the version that ``_version.py`` holds."""
    match = _CONSTANT.search((root / HELD).read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{HELD} has no line __version__ = ...; put it back")
    return match[1]


def _tagged_version(root: Path) -> str | None:
    """Return the version that git tells; one without a tag is lower than any of ours."""
    if not (root / ".git").exists():
        return None
    try:
        command = [*_DESCRIBE, _highest_tag(root) or _VERSION_TAGS]
        options = {"scm": {"git": {"describe_command": command}}}
        source = VCSVersionSource(str(root), {"raw-options": options})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a shallow clone, which is fine
            return str(source.get_version_data()["version"])
    except (LookupError, OSError, ValueError):  # git is missing, or refuses the folder
        return None


def _highest_tag(root: Path) -> str | None:
    """Return the highest version tag of this very commit: a candidate may become the release."""
    listing = ["git", "tag", "--points-at", "HEAD", "--list", _VERSION_TAGS]
    done = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=False)
    versions = {}
    for tag in done.stdout.split():
        with suppress(InvalidVersion):
            versions[Version(tag)] = tag
    return versions[max(versions)] if versions else None


def stamped(text: str, version: str) -> str:
    """Return the text of ``_version.py`` with another version."""
    return _CONSTANT.sub(f'__version__ = "{version}"', text)


class VersionHook(BuildHookInterface):
    """Puts the version of the build into the ``_version.py`` of wheels and sdists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the sources themselves are used
            return
        self._folder = tempfile.TemporaryDirectory(prefix="zael-build-")
        copy = Path(self._folder.name, "_version.py")
        text = Path(self.root, HELD).read_text(encoding="utf-8")
        copy.write_text(stamped(text, self.metadata.version), encoding="utf-8")
        target = HELD if self.target_name == "sdist" else HELD.removeprefix("src/")
        build_data["force_include"][str(copy)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


class AddressHook(MetadataHookInterface):
    """Adds readme and addresses; links of the readme lead to the repository where it is known."""

    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get(ADDRESS, "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        # An unpacked sdist has both in its PKG-INFO.
        metadata.setdefault(
            "readme", {"content-type": "text/markdown", "text": with_address(text, address)}
        )
        if address:
            metadata.setdefault("urls", addresses(address))


def addresses(address: str) -> dict[str, str]:
    """Return the addresses of a project by the address of its repository."""
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def with_address(text: str, address: str) -> str:
    """Return a page with links that work outside of its repository."""
    if not address:
        return text

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}{address}/{kind}/HEAD/{match[2]})"

    return _RELATIVE_LINK.sub(absolute, text).replace("URL-OF-THE-REPOSITORY", address)
