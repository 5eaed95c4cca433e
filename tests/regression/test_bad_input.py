"""What is wrong is said at once, and as our own error."""

import math
import sqlite3
from contextlib import closing

import pytest

from tests.regression.faults import descriptors
from zae_limiter import (
    InfrastructureError,
    Limit,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)

LONE_SURROGATE = "\ud800"
RPM = [Limit.per_minute("rpm", 10)]


@pytest.mark.parametrize("name", [object(), 5, b"bytes", LONE_SURROGATE, "x" * 300, ["name"]])
def test_the_name_of_an_entity_is_text(repo, name):
    with pytest.raises(ValidationError, match="name"):
        repo.create_entity("user", name=name)
    assert repo.get_entity("user") is None


@pytest.mark.parametrize("principal", [[1], object(), 5, LONE_SURROGATE])
def test_a_principal_is_text(repo, principal):
    for change, args in (
        (repo.create_entity, ("user",)),
        (repo.delete_entity, ("user",)),
        (repo.set_limits, ("user", RPM)),
        (repo.delete_limits, ("user",)),
        (repo.set_resource_defaults, ("api", RPM)),
        (repo.delete_resource_defaults, ("api",)),
        (repo.set_system_defaults, (RPM,)),
        (repo.delete_system_defaults, ()),
        (repo.reset_bucket, ("user", "api")),
        (repo.top_up, ("user", "api", {"rpm": 1})),
    ):
        with pytest.raises(ValidationError, match="principal"):
            change(*args, principal=principal)
    assert repo.get_entity("user") is None
    assert repo.get_limits("user") == []


@pytest.mark.parametrize("metadata", [{"k": 1}, {1: "v"}, {"k": LONE_SURROGATE}, {"k": None}, "kv"])
def test_metadata_is_text(repo, metadata):
    with pytest.raises(ValidationError, match="metadata"):
        repo.create_entity("user", metadata=metadata)


@pytest.mark.parametrize("namespace_id", [object(), None, 5, "", LONE_SURROGATE, b"id"])
def test_a_namespace_id_is_text(repo, namespace_id):
    with pytest.raises(ValidationError, match="namespace_id"):
        repo.recover_namespace(namespace_id)
    with pytest.raises(ValidationError, match="namespace_id"):
        repo.purge_namespace(namespace_id)


@pytest.mark.parametrize(
    "state", [{"when": object()}, {"set": {1}}, {"n": math.nan}, [1], None, "text", {"x": b""}]
)
def test_a_stored_document_is_what_json_can_hold(repo, state):
    for put in (repo.put_provisioner_state, repo.set_version_record):
        with pytest.raises(ValidationError):
            put(state)
    assert repo.get_provisioner_state() is None


def test_a_stored_document_can_be_stored(repo):
    """Lone surrogates are JSON, but not text that a file could hold as it is."""
    repo.put_provisioner_state({LONE_SURROGATE: LONE_SURROGATE})
    assert repo.get_provisioner_state() == {LONE_SURROGATE: LONE_SURROGATE}


@pytest.mark.parametrize("multiplier", ["x", 1.5, -1, True, math.inf])
def test_a_bucket_ttl_multiplier_is_a_whole_number(repo, multiplier):
    with pytest.raises(ValidationError, match="bucket_ttl_multiplier"):
        repo.namespace("default", bucket_ttl_multiplier=multiplier)
    with pytest.raises(ValidationError, match="bucket_ttl_multiplier"):
        SyncRepository.builder().bucket_ttl_multiplier(multiplier)
    with pytest.warns(DeprecationWarning, match="ttl"), pytest.raises(ValidationError):
        SyncRateLimiter(repo, bucket_ttl_refill_multiplier=multiplier)


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, -1, "2", None, True, 1e300])
def test_a_time_is_a_finite_number_of_seconds(seconds):
    for setting in ("request_timeout", "config_cache_ttl"):
        with pytest.raises(ValidationError, match=setting):
            SyncRepository.open(url="memory://", **{setting: seconds})
        with pytest.raises(ValidationError, match=setting):
            getattr(Repository.builder(), setting)(seconds)


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


# --- files of others


@pytest.fixture
def foreign_file(path):
    """A database of another program, which counts its own schema from 1, too."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE song (title TEXT)")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    return path


def test_a_file_of_another_program_is_refused_clearly(sqlite_url, foreign_file):
    with pytest.raises(InfrastructureError, match="another program") as refused:
        SyncRepository.open(url=sqlite_url)
    assert not isinstance(refused.value, RateLimiterUnavailable)


def test_a_file_of_another_program_is_left_as_it_is(sqlite_url, foreign_file):
    before = foreign_file.read_bytes()
    with pytest.raises(InfrastructureError):
        SyncRepository.open(url=sqlite_url)
    assert foreign_file.read_bytes() == before


def test_a_refused_file_is_not_kept_open(sqlite_url, foreign_file):
    files = descriptors()
    for _ in range(20):
        with pytest.raises(InfrastructureError):
            SyncRepository.open(url=sqlite_url)
    assert descriptors() <= files


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(sqlite_url, path):
    path.write_text("Dear diary, " * 100)
    with pytest.raises(InfrastructureError, match="not a database"):
        SyncRepository.open(url=sqlite_url)
    assert path.read_text() == "Dear diary, " * 100
