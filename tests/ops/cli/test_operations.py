"""Every command of docs/operations/runbooks.md runs, on every engine."""

import re
import shlex
from pathlib import Path

from tests.ops.cli.inprocess import Ran
from tests.ops.cli.stores import dynamodb_first
from tests.ops.cli.terminal import CTRL_C, terminal

PAGE = Path(__file__).parents[3] / "docs/operations/runbooks.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines():
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [line for block in blocks for line in block.splitlines() if line.startswith("zae-")]


def watched(url, *args):
    """Run a command that goes on for ever, until Ctrl-C after its first table."""
    with terminal(*args, "--url", url) as screen:
        screen.read_until("Ctrl-C")
        screen.press(CTRL_C)
        return Ran(screen.wait(), screen.output, "")


@dynamodb_first
def test_the_commands_of_the_page_run_in_its_order(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(lines()) > 20
    for line in lines():
        _, *args = shlex.split(line)
        found = watched(cli.url, *args) if "--watch" in args else cli(*args)
        assert found.code == 0, f"{line}: {found.err}"


@dynamodb_first
def test_what_the_page_says_that_explain_says(cli, opened):
    page = PAGE.read_text(encoding="utf-8")

    def explained(*args):
        answer = cli("explain", *args).out.splitlines()[-1]
        words = [word for word in re.findall(r"`([^`]+)`", page) if word in answer]
        return answer if words else ""

    assert "is in debt" in explained("key-7", "gpt-4", "-c", "rpm=1")
    cli("bucket", "reset", "key-7", "gpt-4", "--yes")
    assert "more than the capacity" in explained("key-7", "gpt-4", "-c", "rpm=11")
    cli("entity", "set-limits", "project-1", "-l", "rpm:1/day")
    cli("entity", "set-limits", "tenant", "-l", "rpm:1/day")
    from zae_limiter import SyncRateLimiter

    with SyncRateLimiter(opened).acquire("tenant", "gpt-4", {"rpm": 1}):
        pass
    assert "has 0 of the 1 asked for" in explained("tenant", "gpt-4")
