"""Every shell block of the documents can be typed.

Our commands run on a SQLite file, in the order of the page; those about stacks and servers are
parsed. Operations and options of the AWS command line are looked up in botocore's models, targets
in the Makefile.
"""

import re
import shutil

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name_of
from tests.docs.shell import CHECKS, NOT_RUN, answered, lines, parsed
from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.stores import fill, of_aws

# Run on every engine by tests/ops/cli; the examples of the command line are parsed there.
ELSEWHERE = {DOCS / "operations/runbooks.md", DOCS / "cli.md"}
WITH_SHELL = [page for page in PAGES if page not in ELSEWHERE and blocks(page, "bash")]


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """An empty folder, and a store with a little of everything that ZAEL_URL names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("ZAEL_NAMESPACE", "ZAEL_STACK", "ZAEL_PRINCIPAL", "ZAEL_DEBUG", *of_aws()):
        monkeypatch.delenv(name, raising=False)
    url = "sqlite:///limits.db?synchronous=OFF"
    monkeypatch.setenv("ZAEL_URL", url)
    fill(url)
    shutil.copy(tmp_path / "limits.db", tmp_path / "llm.db")  # of the guide to LLM calls
    return tmp_path


def write_files(page, folder):
    """Write the blocks that begin with the name of their file."""
    for block in blocks(page, "yaml"):
        if named := re.match(r"# (\S+\.yaml)\n", block):
            (folder / named[1]).write_text(block, encoding="utf-8")


def test_the_documents_have_shell_blocks():
    assert sum(len(lines(page)) for page in WITH_SHELL) >= 60


@pytest.mark.parametrize("page", WITH_SHELL, ids=name_of)
def test_the_commands_of_a_page_can_be_typed_in_its_order(page, filled, capsys):
    run = CommandLine(capsys, None)
    write_files(page, filled)
    for line in lines(page):
        if line.program == "zae-limiter":
            command = parsed(line.words[1:])
            if line.is_parsed_only:
                continue
            ran = run(*answered(line, command))
            assert ran.code == 0, f"{line.text}: {ran.err}"
            if line.redirected_to:
                (filled / line.redirected_to).write_text(ran.out, encoding="utf-8")
        elif line.program in CHECKS:
            CHECKS[line.program](line.words)
        else:
            assert line.exported or line.program in NOT_RUN, line.text
