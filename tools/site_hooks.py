"""What MkDocs does to a page before it is drawn; named by mkdocs.yml."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Where its $id says that it is, below the address of the site.
SCHEMA = Path("schemas") / "limits-manifest.json"
SCHEMA_SOURCE = Path(__file__).parents[1] / "src/zae_limiter/manifest/schema.json"
CODE = re.compile(r"`[^`\n]*`")


def on_page_markdown(markdown: str, **_: object) -> str:
    r"""Write ``\|`` in code as ``|``.

    GitHub wants a pipe in the code of a table escaped; Python-Markdown shows the backslash.
    """
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)


def on_post_build(config: Mapping[str, Any], **_: object) -> None:
    """Publish the JSON Schema of manifests with the site, for editors."""
    published = Path(config["site_dir"]) / SCHEMA
    published.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SCHEMA_SOURCE, published)
