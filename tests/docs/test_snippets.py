"""Every Python example of the documents runs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def test_the_documents_have_examples():
    assert sum(len(blocks(page)) for page in PAGES) >= 7


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_examples_run_in_the_order_of_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for source in blocks(page):
        code = compile(source, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if result is not None:
            await result
    for value in names.values():
        if type(value).__name__ == "Repository":
            await value.close()


def test_the_example_of_the_readme_can_be_pasted(tmp_path):
    (example,) = blocks(ROOT / "README.md")
    look = 'print(await limiter.available("key-1", "gpt-4"))\nawait repo.close()\n'
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=f"{example}\n{look}",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "Error" not in done.stderr
    rpm, tpm = re.search(r"{'rpm': (\d+), 'tpm': (\d+)}", done.stdout).groups()
    assert int(rpm) == 59
    assert 14_380 <= int(tpm) < 15_000


def test_links_between_documents_lead_somewhere():
    for page in [*PAGES, *sorted((ROOT / "docs/adr").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
