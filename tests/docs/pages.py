"""The pages of the documents, their blocks of code, headings and links."""

import re
import unicodedata
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE_PAGES = sorted(DOCS.rglob("*.md"))
PAGES = [ROOT / "README.md", *SITE_PAGES]
# Pages whose examples nobody runs, but whose links are followed.
_FURTHER = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/locust/README.md")
LINKING = [*PAGES, *(ROOT / name for name in _FURTHER), *sorted(ROOT.glob("benchmarks/*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a language, without the indent of a list that they are in."""
    found = []
    for indent, marked, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if marked == language:
            found.append("".join(line.removeprefix(indent) for line in body.splitlines(True)))
    return found


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Python-Markdown makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        words = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
        anchor = base = re.sub(r"[-\s]+", "-", words)
        number = 1
        while anchor in found:
            anchor, number = f"{base}_{number}", number + 1
        found.add(anchor)
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """Return path and anchor of every link and picture that leads to a file."""
    targets = (target for target in LINK.findall(prose(page)) if "://" not in target)
    return [(path, anchor) for path, _, anchor in (target.partition("#") for target in targets)]


class _PlainLoader(yaml.SafeLoader):
    """Reads mkdocs.yml without importing what it names."""


_PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


def site() -> dict:
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _PlainLoader)


def in_nav(entries) -> list[str]:
    """Return the pages that a menu names."""
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    return [page for entry in inner for page in in_nav(entry)]
