"""Hints pasted into a real shell: it runs the command that the hint names, and nothing else."""

import json
import subprocess
import sys

import pytest

from tests.ops.cli.stores import on_both_engines
from tests.ops.cli.terminal import terminal
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.shell_words import quoted

# Quotes, a substitution of each kind, blanks that must stay two, a comment, a second command.
HOSTILE = 'a\'$(>substituted) `>substituted`  "b" ;>substituted *'
LIKE_IT = HOSTILE.replace('"b"', '"c"')
MISTYPED = HOSTILE.replace('"b"', '"d"')
LIKE_AN_OPTION = "--help"
FAKE = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
"""


class Shell:
    """A shell whose only program is a ``zae-limiter`` that notes its arguments."""

    def __init__(self, folder):
        self._folder, self._log = folder, folder / "ran"
        program = folder / "bin" / "zae-limiter"
        program.parent.mkdir()
        program.write_text(FAKE.format(python=sys.executable, log=str(self._log)))
        program.chmod(0o755)

    def paste(self, line):
        """Return the arguments of each command that a pasted line has run."""
        self._log.unlink(missing_ok=True)
        subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self._folder,
            env={"PATH": str(self._folder / "bin")},
            capture_output=True,
            timeout=60,
            check=False,  # the words of the hint after a command are no commands
        )
        assert sorted(path.name for path in self._folder.iterdir()) == ["bin", "ran"], line
        return [json.loads(arguments) for arguments in self._log.read_text().splitlines()]


@pytest.fixture
def paste(tmp_path):
    folder = tmp_path / "shell"
    folder.mkdir()
    return Shell(folder).paste


def pasted_commands(paste, text):
    """Return what each command in a text runs if it is pasted with all that follows it."""
    ran = []
    while ": zae-limiter " in text:
        _, _, text = text.partition(": zae-limiter ")
        ran.append(paste("zae-limiter " + text.partition("\n")[0])[0])
    return ran


def filled(url):
    """Store two entities whose ids a shell would run, one below the other."""
    repository = SyncRepository.open(url=url)
    repository.set_system_defaults([Limit.per_minute("rpm", 60)])
    for entity_id in (HOSTILE, LIKE_IT, LIKE_AN_OPTION):
        repository.create_entity(entity_id, parent_id=None if entity_id == HOSTILE else HOSTILE)
        repository.set_limits(entity_id, [Limit.per_minute("rpm", 60)], "gpt-5")
        with SyncRateLimiter(repository).acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    return repository


@pytest.fixture
def hostile(shell):
    with filled(shell.url) as repository:
        yield repository


STRANGER = HOSTILE[::-1]  # like no other id, so that nothing else is suggested
CASES = [
    (["entity", "show", STRANGER], ["entity", "create", STRANGER]),
    (["entity", "create", HOSTILE], ["entity", "show", HOSTILE]),
    (["entity", "create", HOSTILE], ["entity", "set-parent", HOSTILE]),
    (["entity", "get-limits", HOSTILE], ["entity", "show", HOSTILE]),
    (["entity", "delete-limits", HOSTILE], ["entity", "show", HOSTILE]),
    (["entity", "delete", STRANGER, "--yes"], ["entity", "create", STRANGER]),
    (["entity", "create", "x", "--parent", STRANGER], ["entity", "create", STRANGER]),
    (["entity", "set-parent", STRANGER, HOSTILE],
     ["entity", "create", STRANGER, "--parent", "PARENT"]),
    (["entity", "list", "-N", "unheard-of"], ["namespace", "list"]),
    (["entity", "list", "-N", "unheard-of"], ["namespace", "register", "unheard-of"]),
    (["namespace", "recover", "unheard-of"], ["namespace", "orphans"]),
    (["namespace", "purge", "default", "--yes"], ["namespace", "delete", "default"]),
]  # fmt: skip


@pytest.mark.parametrize(("args", "words"), CASES)
def test_a_suggested_command_is_what_the_shell_runs(shell, hostile, paste, args, words):
    ran = shell.run(*args)
    text = ran.err + ran.out
    assert words in pasted_commands(paste, text), text
    assert "'zae-limiter" not in text  # quotes around a command end at the first quote inside


def test_the_options_of_the_store_are_quoted(shell, hostile, paste, tmp_path):
    url = f"sqlite:///{tmp_path}/it's $(>substituted).db"
    text = shell.run("entity", "list", "--url", url).err
    wanted = ["namespace", "register", "default", "--url", url]
    assert wanted in pasted_commands(paste, text)


def test_an_id_that_looks_like_an_option_stays_an_argument(shell, hostile, paste):
    store = ["--url", shell.url]
    text = shell.run("entity", "create", *store, "--", LIKE_AN_OPTION).err
    first, second = pasted_commands(paste, text)
    assert first == ["entity", "show", *store, "--", LIKE_AN_OPTION]
    assert second == ["entity", "set-parent", *store, "--", LIKE_AN_OPTION]
    assert (
        json.loads(shell(*first[:2], "--output", "json", *first[2:]).out)["entity_id"] == "--help"
    )


def test_orphans_of_a_deleted_entity_are_moved_by_a_safe_command(shell, hostile, paste):
    text = shell("entity", "delete", HOSTILE, "--yes").err
    [command] = pasted_commands(paste, text)
    assert command[:2] == ["entity", "set-parent"]
    assert {LIKE_AN_OPTION, "PARENT"} <= {*command}


def test_a_changed_limit_points_to_explain(shell, hostile, paste):
    shell("entity", "set-limits", "-l", "rpm:7", "--", HOSTILE)
    text = shell("bucket", "show", HOSTILE).err
    assert pasted_commands(paste, text) == [["explain", HOSTILE, "RESOURCE"]]


def test_a_deleted_namespace_is_recovered_or_purged(shell, hostile, paste):
    shell("namespace", "register", "tenant-a")
    text = shell("namespace", "delete", "tenant-a", "--yes").out
    recover, purge = pasted_commands(paste, text)
    assert (recover[:2], purge[:2]) == (["namespace", "recover"], ["namespace", "purge"])
    assert recover[2:] == purge[2:]


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    "listing",
    [
        ["entity", "list"],
        ["entity", "list", "--all-namespaces"],
        ["entity", "list", "--parent", HOSTILE],
        ["entity", "list", "--with-custom-limits", "gpt-5"],
        ["bucket", "list"],
        ["bucket", "list", "--all-namespaces"],
        ["audit", "list"],
        ["usage", "list"],
        ["usage", "list", "--all-namespaces"],
    ],
)
def test_the_next_page_of_a_listing(shell, hostile, paste, listing):
    first = shell(*listing, "--limit", "1")
    option = next(
        name for name in ("--cursor", "--next-key", "--start-event-id") if name in first.err
    )
    _, _, rest = first.err.partition(option)
    [[given, cursor]] = paste(f"zae-limiter {option}{rest}")
    assert given == option
    json_options = [*listing, "--output", "json", "--limit"]
    both = names_in(shell(*json_options, "2").json)
    second = names_in(shell(*json_options, "1", option, cursor).json)
    assert second == both[1:] != []


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("listing", [["entity", "list"], ["bucket", "list"], ["usage", "list"]])
def test_the_next_page_after_the_longest_names(shell, paste, listing):
    ids = [letter * 256 for letter in "ab"]
    with SyncRepository.open(url=shell.url) as repository:
        limiter = SyncRateLimiter(repository)
        for entity_id in ids:
            limits = [Limit.per_minute("rpm", 60)]
            with limiter.acquire(entity_id, "r" * 128, {"rpm": 1}, limits=limits):
                pass
    first = shell(*listing, "--limit", "1").err
    _, _, option = first.partition("add " if "--next-key" in first else "or ")
    [words] = paste(f"zae-limiter {option}")
    second = names_in(shell(*listing, "--output", "json", "--limit", "1", *words).json)
    assert [row["entity_id"] for row in second] == ids[1:]


def names_in(listed):
    """Return the rows of a listing without the levels of buckets, which change all the time."""
    rows = next(iter(listed.values()))
    return [{name: row[name] for name in row if name != "limits"} for row in rows]


@pytest.mark.parametrize(
    "args",
    [
        ["entity", "show", MISTYPED],
        ["bucket", "show", MISTYPED],
        ["bucket", "list", "--entity", MISTYPED],
        ["bucket", "pause", MISTYPED, "gpt-4", "1"],
        ["explain", MISTYPED, "gpt-4"],
    ],
)
def test_a_name_that_may_have_been_meant_is_one_word(shell, hostile, paste, args):
    ran = shell.run(*args)
    _, _, rest = (ran.err + ran.out).partition("did you mean ")
    [[word, *_]] = paste(f"zae-limiter {rest.partition('?)')[0]}")
    assert word in (HOSTILE, LIKE_IT)


@pytest.mark.parametrize(
    "args",
    [
        ["bucket", "show", STRANGER],
        ["bucket", "list", "--entity", STRANGER],
        ["bucket", "pause", STRANGER, "gpt-4", "0"],
        ["entity", "get-limits", STRANGER],
        ["entity", "list", "--parent", STRANGER],
        ["explain", STRANGER, "gpt-4"],
    ],
)
def test_a_name_in_a_hint_is_one_word(shell, hostile, args):
    assert quoted(STRANGER) in shell.run(*args).err


def test_a_terminal_gets_every_command_in_one_piece(shell, hostile, paste):
    with terminal("entity", "show", STRANGER, "--url", shell.url, columns=60) as screen:
        screen.wait()
    lines = screen.output.replace("\r", "").splitlines()
    assert len(lines) > 1
    [command] = [line for line in lines if line.startswith("zae-limiter ")]
    assert paste(command) == [["entity", "create", STRANGER, "--url", shell.url]]
