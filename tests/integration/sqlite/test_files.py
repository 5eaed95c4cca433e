"""Files: new, old, foreign, broken, and oddly named."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zae_limiter import (
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    Limit,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    ZAELimiterError,
)

LIMITS = [Limit.per_minute("rpm", 10)]


def make_foreign(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (a)")
        other.execute("INSERT INTO mine VALUES (1)")
        other.commit()


def make_foreign_with_version(path):
    """Another program that counts its own schema, too, and is at the number of ours."""
    make_foreign(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 1")


def make_text(path):
    path.write_text("This is not a database, and must not be overwritten.\n" * 100)


def make_newer(path):
    SyncRepository.open(url=f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 999")


REFUSED = [make_foreign, make_foreign_with_version, make_text, make_newer]


def test_a_file_of_a_newer_version_is_refused_with_both_versions(path, url):
    make_newer(path)
    with pytest.raises(IncompatibleSchemaError) as caught:
        SyncRepository.open(url=url)
    assert caught.value.found == 999
    assert caught.value.supported < 999
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", [make_foreign, make_foreign_with_version])
def test_a_sqlite_file_of_another_program_is_refused_by_name(path, url, make):
    make(path)
    with pytest.raises(InfrastructureError, match="another program") as caught:
        SyncRepository.open(url=url)
    assert str(path) in str(caught.value)
    assert not isinstance(caught.value, RateLimiterUnavailable)


def test_a_file_that_is_no_database_is_refused_by_name(path, url):
    make_text(path)
    with pytest.raises(InfrastructureError, match="not a database") as caught:
        SyncRepository.open(url=url)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", REFUSED)
def test_a_file_that_is_refused_is_not_touched(path, url, make):
    make(path)
    before = path.read_bytes()
    with pytest.raises(ZAELimiterError):
        SyncRepository.open(url=url)
    assert path.read_bytes() == before


@pytest.mark.parametrize("make", REFUSED)
async def test_a_file_that_is_refused_is_not_kept_open(path, url, make):
    make(path)
    before = _open_files()
    for _ in range(5):
        with pytest.raises(ZAELimiterError):
            SyncRepository.open(url=url)
        with pytest.raises(ZAELimiterError):
            await Repository.open(url=url)
    assert _open_files() <= before + 2  # the loop's own


def test_an_empty_file_is_taken_into_use(path, url):
    path.touch()
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults(LIMITS)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InfrastructureNotFoundError, match="missing"):
        SyncRepository.open(url=f"sqlite:///{tmp_path}/no/such/folder.db")


@pytest.mark.parametrize("suffix", ["-gate", "-lock", "-wal", "-shm"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_in_the_place_of_a_file_beside_the_store_is_named(tmp_path, suffix, exists):
    path = tmp_path / "limits.db"
    if exists:
        with SyncRepository.open(url=f"sqlite:///{path}"):
            pass
    beside = Path(f"{path}{suffix}")
    beside.unlink(missing_ok=True)
    beside.mkdir()
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(url=f"sqlite:///{path}")
    assert str(beside) in str(caught.value)
    assert "is a folder; remove or rename" in str(caught.value)
    beside.rmdir()
    with SyncRepository.open(url=f"sqlite:///{path}") as repository:
        repository.ping()


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(url=f"sqlite:///{tmp_path}")
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0o644, b"opened looked acquired"),
        (0o444, b"opened looked PermissionDenied"),
        (0o000, b"PermissionDenied"),
    ],
    ids=["all", "reading", "nothing"],
)
def test_the_permissions_of_a_file_say_how_far_one_gets(start, path, url, mode, told):
    SyncRepository.open(url=url).close()
    path.chmod(mode)
    assert start("ordinary_child.py", url).communicate(timeout=20)[0].strip() == told


def test_a_file_that_may_be_written_again_is_written_again(start, path, url):
    """SQLite does not look again whether a file may be written, once it has opened it."""
    SyncRepository.open(url=url).close()
    path.chmod(0o444)
    child = start("ordinary_child.py", url, "patient")
    told = b"opened looked PermissionDenied "
    assert child.stdout.read(len(told)) == told
    for each in path.parent.glob(f"{path.name}*"):  # SQLite gives its log the file's permissions
        each.chmod(0o644)
    assert child.communicate(b"again\nand again\n", timeout=20)[0] == b"acquired acquired "


def test_a_folder_that_may_not_be_written_is_a_matter_of_permission(start, path, url):
    path.parent.chmod(0o555)
    told = start("ordinary_child.py", url).communicate(timeout=20)[0]
    assert told.strip() == b"PermissionDenied"
    path.parent.chmod(0o755)


@pytest.mark.parametrize("name", ["with space.db", "ünï.db", "100%.db", "a?b#c.db", "plain"])
def test_a_path_may_contain_what_paths_contain(tmp_path, name):
    quoted = name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    with SyncRepository.open(url=f"sqlite:///{tmp_path}/{quoted}") as repository:
        repository.set_system_defaults(LIMITS)
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///:memory:",
        "sqlite:///%3Amemory%3A",
        "sqlite:///",
        "sqlite://",
        "sqlite:///limits%00.db",
    ],
)
async def test_a_url_that_names_no_file_is_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match="url"):
        SyncRepository.open(url=url)
    with pytest.raises(ValidationError, match="url"):
        await Repository.open(url=url)
    assert list(tmp_path.iterdir()) == []


def test_three_slashes_name_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SyncRepository.open(url="sqlite:///limits.db").close()
    assert (tmp_path / "limits.db").is_file()


@pytest.mark.parametrize("mode", ["OFF", "normal", "FULL", "EXTRA"])
def test_how_hard_to_sync_can_be_chosen(url, mode):
    with SyncRepository.open(url=f"{url}?synchronous={mode}") as repository:
        repository.set_system_defaults(LIMITS)


@pytest.mark.parametrize("option", ["synchronous=sometimes", "synchronous=", "mode=ro"])
def test_an_unknown_option_is_refused(url, option):
    with pytest.raises(ValidationError):
        SyncRepository.open(url=f"{url}?{option}")


def test_many_processes_may_make_the_file_at_the_same_moment(start, url):
    children = [start("opening_child.py", url) for _ in range(4)]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    answers = {child.communicate(timeout=20)[0] for child in children}
    assert len(answers) == 1
    with SyncRepository.open(url=url) as repository:
        assert repository.get_bucket("user", "api", "rpm").tokens == 96


def test_a_file_that_is_damaged_while_in_use_gives_an_error_of_ours(path, url):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults(LIMITS)
        for number in range(200):
            repository.create_entity(f"user-{number}")
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = bytes(len(damaged) - 4096)
    path.write_bytes(damaged)
    with pytest.raises(RateLimiterUnavailable):
        _use(url)


def test_the_last_one_out_leaves_a_single_data_file(path, url):
    first, second = SyncRepository.open(url=url), SyncRepository.open(url=url)
    first.set_system_defaults(LIMITS)
    first.close()
    second.close()
    assert not path.with_name("limits.db-wal").exists()


def _open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def _use(url):
    with (
        SyncRepository.open(url=url) as repository,
        SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}),
    ):
        pass
