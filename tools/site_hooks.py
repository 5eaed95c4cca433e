"""Hooks that MkDocs runs on a page before it is drawn; named by mkdocs.yml."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# The path that its $id names, below the address of the site.
SCHEMA = Path("schemas") / "limits-manifest.json"
SCHEMA_SOURCE = Path(__file__).parents[1] / "src/zae_limiter_ops/manifest/schema.json"
# The script that draws diagrams, installed by make docs: the theme would load it from another host.
MERMAID = Path(__file__).parents[1] / ".tools/mermaid"
SCRIPT = "assets/javascripts/mermaid.min.js"
DIAGRAM = '<pre class="mermaid">'
CODE = re.compile(r"`[^`\n]*`")
# What readers type, by page.
SEARCH_WORDS = Path(__file__).with_name("search_words.yml")
# What counts less in a search than the guides: names of the reference, and pages about the inside.
SEARCHED_LESS = {"reference/api/": 0.3, "adr/": 0.2, "contributing/": 0.2, "cli.md": 0.5}


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    r"""Write ``\|`` in code as ``|``, and let the search rank pages by their readers.

    GitHub wants a pipe in the code of a table escaped; Python-Markdown shows the backslash.
    """
    name = page.file.src_uri
    if words := search_words().get(name):
        page.meta["tags"] = words
    for folder, boost in SEARCHED_LESS.items():
        if name.startswith(folder):
            page.meta["search"] = {"boost": boost}
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)


def search_words() -> dict[str, list[str]]:
    """Return what readers type into the search, by the page that answers it."""
    words: dict[str, list[str]] = yaml.safe_load(SEARCH_WORDS.read_text(encoding="utf-8"))
    return words


def on_post_page(output: str, page: Any, **_: object) -> str:
    """Let a page with diagrams load the script that draws them from the site itself."""
    if DIAGRAM not in output:
        return output
    if not MERMAID.exists():
        log = logging.getLogger("mkdocs.hooks.diagrams")
        log.warning("%s: what draws its diagrams is missing; run make docs", page.file.src_uri)
    address = os.path.relpath(SCRIPT, page.url or ".")
    return output.replace("</head>", f'<script src="{address}"></script></head>', 1)


def on_post_build(config: Mapping[str, Any], **_: object) -> None:
    """Publish the JSON Schema of manifests, for editors, and the script that draws diagrams."""
    site = Path(config["site_dir"])
    _publish(SCHEMA_SOURCE, site / SCHEMA)
    if MERMAID.exists():
        _publish(MERMAID / "dist/mermaid.min.js", site / SCRIPT)
        _publish(MERMAID / "LICENSE", site / "assets/javascripts/mermaid.LICENSE.txt")


def _publish(source: Path, published: Path) -> None:
    published.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, published)
