"""Every Python example of the documents runs."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, FENCE, PAGES, ROOT, blocks, name_of
from zae_limiter import Repository, SyncRepository
from zae_limiter_ops.infra import aggregator

WITH_EXAMPLES = [page for page in PAGES if blocks(page, "python")]


def test_the_documents_have_examples():
    assert len(WITH_EXAMPLES) >= 15


def stand_in(file):
    """Return the module that takes the place of a library for the time of a test."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
async def test_examples_run_in_the_order_of_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in Path(__file__).with_name("stand_ins").glob("*.py"):
        monkeypatch.setitem(sys.modules, file.stem, stand_in(file))
    names = {}
    async with AsyncExitStack() as opened:
        for source in blocks(page, "python"):
            code = compile(source, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if result is not None:
                await result
        for value in names.values():
            if isinstance(value, Repository):
                opened.push_async_callback(value.close)
            elif isinstance(value, SyncRepository):
                opened.callback(value.close)


def test_the_example_of_the_readme_can_be_pasted(tmp_path):
    (example,) = blocks(ROOT / "README.md", "python")
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


def test_every_block_says_what_it_is():
    languages = {"bash", "javascript", "json", "mermaid", "py", "python", "sql", "text", "yaml"}
    for page in PAGES:
        marked = {language for _, language, _ in FENCE.findall(page.read_text(encoding="utf-8"))}
        assert marked <= languages, name_of(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_that_are_not_run_can_be_read(page):
    for source in blocks(page, "py"):
        compile(source, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for text in blocks(page, "yaml"):
        yaml.safe_load(text)
    for text in blocks(page, "json"):
        for document in re.split(r"\n(?=\{)", text.strip()):
            json.loads(document)


def test_filters_of_the_stream_are_those_of_the_template():
    (filters,) = blocks(DOCS / "operations/usage.md", "json")
    written = [json.loads(line) for line in filters.splitlines()]
    assert written == [aggregator.TURNED_HOURS, aggregator.REMOVED_EVENTS]
