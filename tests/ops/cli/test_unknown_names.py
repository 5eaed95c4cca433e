"""A name that the namespace has never seen is probably mistyped: changes say so."""

import pytest

from tests.ops.cli.stores import dynamodb_first, on_both_engines
from zae_limiter import SyncRateLimiter

KEY = "'key-77' was not known before this change (did you mean 'key-7'?)"
RESOURCE = "resource 'gtp-4' was not known before this change (did you mean 'gpt-4'?)"


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "warnings"),
    [
        (["entity", "set-mode", "key-77", "bypass"], [KEY]),
        (["entity", "set-mode", "key-7", "bypass", "-r", "gtp-4"], [RESOURCE]),
        (["entity", "set-mode", "key-77", "shadow", "-r", "gtp-4"], [KEY, RESOURCE]),
        (["entity", "set-limits", "key-77", "-l", "rpm:5"], [KEY]),
        (["entity", "set-limits", "key-7", "-r", "gtp-4", "-l", "rpm:5"], [RESOURCE]),
        (["resource", "set-mode", "gtp-4", "shadow"], [RESOURCE]),
        (["resource", "set-defaults", "gtp-4", "-l", "rpm:5"], [RESOURCE]),
        (["bucket", "pause", "key-7", "gtp-4", "30"], [RESOURCE]),
    ],
)
def test_a_change_of_an_unknown_name_suggests_a_known_one(cli, args, warnings):
    ran = cli(*args)
    assert ran.code == 0
    for warning in warnings:
        assert warning in ran.err
    assert ran.err.count("was not known") == len(warnings)
    assert "was not known" not in cli(*args).err  # it is known now
    assert cli(*args, "--output", "json").json


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "suggestion"),
    [
        (["bucket", "reset", "key-77", "gpt-4", "--yes"], "'key-7'"),
        (["bucket", "reset", "key-7", "gtp-4", "--yes"], "'gpt-4'"),
        (["bucket", "top-up", "key-77", "gpt-4", "-a", "tpm=5"], "'key-7'"),
        (["bucket", "top-up", "key-7", "gtp-4", "-a", "tpm=5"], "'gpt-4'"),
        (["entity", "delete", "key-77", "--yes"], "'key-7'"),
        (["entity", "set-parent", "key-77", "project-1"], "'key-7'"),
        (["entity", "set-parent", "key-7", "projekt-1"], "'project-1'"),
        (["entity", "set-mode", "key-77", "deny"], "'key-7'"),
        (["entity", "set-mode", "key-7", "deny", "-r", "gtp-4"], "'gpt-4'"),
        (["resource", "set-mode", "gtp-4", "deny"], "'gpt-4'"),
    ],
)
def test_a_change_that_would_miss_its_target_is_refused(cli, opened, args, suggestion):
    before = opened.get_audit_events()
    assert f"did you mean {suggestion}?" in cli(*args).error(1)
    assert opened.get_audit_events() == before


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "suggestion"),
    [
        (["entity", "delete-limits", "key-77", "--yes"], "'key-7'"),
        (["entity", "delete-limits", "key-7", "-r", "gtp-4", "--yes"], "'gpt-4'"),
        (["resource", "delete-defaults", "gtp-4", "--yes"], "'gpt-4'"),
    ],
)
def test_a_removal_that_finds_nothing_suggests_a_known_name(cli, args, suggestion):
    assert f"did you mean {suggestion}?" in cli(*args).err


@dynamodb_first
def test_an_unknown_key_is_denied_with_force(cli, opened):
    refused = cli("entity", "set-mode", "leaked", "deny")
    assert "--force" in refused.error(1)
    assert opened.get_mode(entity_id="leaked") is None
    assert cli("entity", "set-mode", "leaked", "deny", "--force").out.startswith("leaked on all")
    assert cli("resource", "set-mode", "new-model", "deny", "--force").code == 0
    assert opened.get_mode("new-model").mode == "deny"


@dynamodb_first
def test_an_unknown_key_that_is_only_used_is_suggested_and_known(cli, opened):
    with SyncRateLimiter(opened).acquire("tenant-5", "gpt-4", {"rpm": 1}):
        pass
    assert "did you mean 'tenant-5'?" in cli("entity", "set-mode", "tenant-55", "deny").error(1)
    opened.delete_entity("tenant-5")
    assert cli("entity", "set-mode", "tenant-5", "deny").code == 0  # its usage stays


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "pause"),
    [
        (["entity", "set-mode", "key-7", "deny"], "bucket pause key-7 600 --all-resources"),
        (["entity", "set-mode", "key-7", "deny", "-r", "gpt-4"], "bucket pause key-7 gpt-4 600"),
        (["resource", "set-mode", "gpt-4", "deny"], ""),
    ],
)
def test_deny_says_how_long_other_processes_may_still_admit(cli, args, pause):
    found = cli(*args).err
    assert "other processes may admit calls for the rest of their config_cache_ttl" in found
    assert "60 s by default" in found
    assert pause in found
