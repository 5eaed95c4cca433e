"""What callers pass and get: wrong input is refused alike by all engines, nothing is shared."""

import math

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.testing import FakeClock

RPM = Limit.per_minute("rpm", 10)
HALF_A_CHARACTER = "\ud800"


class Thing:
    """Something that is neither text nor number."""

    def __repr__(self) -> str:
        return "Thing()"


@pytest.fixture(params=["memory", "sqlite"])
def repository(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"
    with SyncRepository.open(url=url, clock=FakeClock()) as opened:
        yield opened


@pytest.mark.parametrize("name", [5, b"bytes", ["x"], HALF_A_CHARACTER], ids=repr)
def test_the_name_of_an_entity_is_text(repository, name):
    with pytest.raises(ValidationError) as caught:
        repository.create_entity("user-1", name=name)
    assert caught.value.field == "name"
    assert repository.get_entity("user-1") is None


@pytest.mark.parametrize(
    "metadata",
    [[], "text", {1: "x"}, {"x": 1}, {"x": None}, {"x": HALF_A_CHARACTER}],
    ids=repr,
)
def test_metadata_is_text_by_text(repository, metadata):
    with pytest.raises(ValidationError) as caught:
        repository.create_entity("user-1", metadata=metadata)
    assert caught.value.field.startswith("metadata")


CHANGES = {
    "create_entity": lambda repository, author: repository.create_entity("a", principal=author),
    "delete_entity": lambda repository, author: repository.delete_entity("a", principal=author),
    "set_parent": lambda repository, author: repository.set_parent("a", None, principal=author),
    "set_limits": lambda repository, author: repository.set_limits("a", [RPM], principal=author),
    "delete_limits": lambda repository, author: repository.delete_limits("a", principal=author),
    "set_resource_defaults": lambda repository, author: repository.set_resource_defaults(
        "r", [RPM], principal=author
    ),
    "set_system_defaults": lambda repository, author: repository.set_system_defaults(
        [RPM], principal=author
    ),
    "reset_bucket": lambda repository, author: repository.reset_bucket("a", "r", principal=author),
    "top_up": lambda repository, author: repository.top_up("a", "r", {"rpm": 1}, principal=author),
    "pause": lambda repository, author: repository.pause("a", "r", 1, principal=author),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("principal", [5, b"bytes", Thing(), HALF_A_CHARACTER], ids=repr)
def test_a_principal_is_text(repository, change, principal):
    with pytest.raises(ValidationError) as caught:
        CHANGES[change](repository, principal)
    assert caught.value.field == "principal"


@pytest.mark.parametrize("record", [{"x": math.nan}, {"x": Thing()}, [], "text"], ids=repr)
def test_a_record_is_strict_json(repository, record):
    with pytest.raises(ValidationError):
        repository.set_version_record(record)
    with pytest.raises(ValidationError):
        repository.put_provisioner_state(record)


@pytest.mark.parametrize("limit", [2**70, 2**63])
def test_a_page_may_be_as_long_as_anyone_likes(repository, limit):
    repository.set_limits("user-1", [RPM], "gpt-4")
    assert repository.list_entities_with_custom_limits("gpt-4", limit=limit) == (["user-1"], None)
    assert len(repository.get_audit_events("user-1", limit=limit)) == 1
    assert repository.get_usage_snapshots("user-1", limit=limit) == ([], None)


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "5"], ids=repr)
def test_a_page_has_a_length(repository, limit):
    for listing in (
        lambda: repository.list_entities_with_custom_limits("gpt-4", limit=limit),
        lambda: repository.get_audit_events("user-1", limit=limit),
        lambda: repository.get_usage_snapshots("user-1", limit=limit),
    ):
        with pytest.raises(ValidationError):
            listing()


LOOKUPS = {
    "cursor": lambda repository, text: repository.list_entities_with_custom_limits(
        "gpt-4", cursor=text
    ),
    "start_event_id": lambda repository, text: repository.get_audit_events(
        "user-1", start_event_id=text
    ),
    "subject": lambda repository, text: repository.get_audit_events(text),
    "next_key": lambda repository, text: repository.get_usage_snapshots("user-1", next_key=text),
    "recover": lambda repository, text: repository.recover_namespace(text),
    "purge": lambda repository, text: repository.purge_namespace(text),
}


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("text", [HALF_A_CHARACTER, 5, Thing()], ids=["half", "number", "object"])
def test_keys_and_ids_from_elsewhere_are_refused(repository, lookup, text):
    with pytest.raises(ValidationError):
        LOOKUPS[lookup](repository, text)


# --- nothing is shared with the store


def test_what_was_stored_does_not_change_with_what_was_passed(repository):
    metadata, record = {"plan": "free"}, {"nested": {"version": 1}}
    repository.create_entity("user-1", metadata=metadata)
    repository.set_version_record(record)
    metadata["plan"], record["nested"]["version"] = "paid", 2
    assert repository.get_entity("user-1").metadata == {"plan": "free"}
    assert repository.get_version_record() == {"nested": {"version": 1}}


def test_what_was_stored_does_not_change_with_what_was_returned(repository):
    created = repository.create_entity("user-1", parent_id="team", metadata={"plan": "free"})
    repository.set_version_record({"nested": {"version": 1}})
    created.metadata["plan"] = "paid"
    repository.get_entity("user-1").metadata["plan"] = "paid"
    repository.get_children("team")[0].metadata["plan"] = "paid"
    repository.get_version_record()["nested"]["version"] = 2
    repository.get_audit_events("user-1")[0].details["metadata"]["plan"] = "paid"
    assert repository.get_entity("user-1").metadata == {"plan": "free"}
    assert repository.get_version_record() == {"nested": {"version": 1}}
    assert repository.get_audit_events("user-1")[0].details["metadata"] == {"plan": "free"}


def test_reported_usage_can_be_changed_without_harm(repository):
    repository.set_system_defaults([RPM])
    with SyncRateLimiter(repository).acquire("user-1", "gpt-4", {"rpm": 2}):
        pass
    repository.get_usage_snapshots("user-1")[0][0].counters["rpm"] = 99
    assert repository.get_usage_summary("user-1").total == {"rpm": 2}


# --- warnings


@pytest.mark.parametrize("keyword", ["name", "region", "endpoint_url", "auto_update"])
def test_a_deprecated_keyword_warns_where_it_is_written(repository, keyword):
    with pytest.warns(DeprecationWarning, match=keyword) as caught:
        SyncRateLimiter(repository, **{keyword: "x"})
    assert [each.filename for each in caught] == [__file__]


def test_deprecated_forms_of_acquire_warn_where_they_are_written_and_work(repository):
    limiter = SyncRateLimiter(repository)
    with pytest.warns(DeprecationWarning, match="consume comes first") as caught:
        block = limiter.acquire("user-1", "gpt-4", [RPM], {"rpm": 1})
    with block as lease:
        assert lease.consumed == {"rpm": 1}
    with pytest.warns(DeprecationWarning, match="cascade") as more:
        block = limiter.acquire("user-1", "gpt-4", {"rpm": 1}, [RPM], cascade=True)
    with block:
        pass
    assert [each.filename for each in [*caught, *more]] == [__file__, __file__]


def test_unknown_keywords_are_an_error(repository):
    with pytest.raises(TypeError, match="nonsense"):
        SyncRateLimiter(repository, nonsense=1)
