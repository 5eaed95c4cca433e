"""The search of the site leads from the words of operators to the page that answers them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tools.site_hooks import search_words

QUESTIONS = [(word, page) for page, words in search_words().items() for word in words]
SEARCH = Path(__file__).with_name("search.mjs")


def address(page):
    """Return the address of a page in the site."""
    name = page.removesuffix(".md").removesuffix("index")
    return name if not name or name.endswith("/") else f"{name}/"


def test_every_word_has_one_page_which_exists():
    words = [word for word, _ in QUESTIONS]
    assert len(words) == len(set(words))
    assert not [page for page in search_words() if not (DOCS / page).is_file()]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The first address that the built site finds for each word."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    words = [word for word, _ in QUESTIONS]
    asked = subprocess.run(
        ["node", str(SEARCH), str(folder), *words], capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in asked.stdout.splitlines()]
    return {
        word: answer[0].partition("#")[0] if answer else None
        for word, answer in zip(words, answers, strict=True)
    }


@pytest.mark.slow  # it builds the whole site
@pytest.mark.timeout(300)
def test_the_search_of_the_built_site_finds_the_page_first(found):
    wrong = {word: found[word] for word, page in QUESTIONS if found[word] != address(page)}
    assert wrong == {}
