"""What an operator does from the shell, on every engine."""

import os
import re
import socket
import sys

import pytest

from tests.ops.cli.stores import dynamodb_first, on_both_engines
from tests.ops.cli.terminal import MODULE, only_line, run, run_command
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.models.timestamps import iso_from_ms


def test_a_store_that_could_not_be_made_is_not_called_new(cli, tmp_path):
    too_long = "x" * 252  # the files beside it have longer names
    for name in ("missing/limits.db", too_long):
        failed = cli(
            "system", "set-defaults", "-l", "rpm:60", "--url", f"sqlite:///{tmp_path}/{name}"
        )
        assert failed.code == 1
        assert "new store" not in failed.err


@dynamodb_first
def test_limits_from_the_shell_are_what_the_library_goes_by(shell, engine):
    found = shell("system", "set-defaults", "-l", "rpm:60", "--on-unavailable", "allow")
    assert ("note: new store" in found.err) == (engine == "sqlite")
    shell("resource", "set-defaults", "gpt-4", "-l", "rpm:2/min", "-l", "tpm:1000/hour:5_000")
    shell("entity", "create", "project-1")
    shell("entity", "create", "key-7", "--parent", "project-1", "--cascade")
    shell("entity", "set-limits", "project-1", "-r", "gpt-4", "-l", "rpm:1")
    with SyncRepository.open(url=shell.url) as repository:
        assert repository.get_system_defaults() == ([Limit.per_minute("rpm", 60)], "allow")
        assert repository.get_resource_defaults("gpt-4") == [
            Limit.per_minute("rpm", 2),
            Limit.per_hour("tpm", 1000, burst=5000),
        ]
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-7", "gpt-4", {"rpm": 1}):
            pass
        with (
            pytest.raises(RateLimitExceeded) as caught,
            limiter.acquire("key-7", "gpt-4", {"rpm": 1}),
        ):
            pass
    assert caught.value.primary_violation.entity_id == "project-1"
    text = shell("explain", "key-7", "gpt-4", "-c", "rpm=1").out
    assert "LIMITED, retry in " in text
    assert "rpm of project-1 has 0 of the 1 asked for" in text
    shell("bucket", "top-up", "project-1", "gpt-4", "-a", "rpm=1", "--principal", "night shift")
    assert "ADMITTED" in shell("explain", "key-7", "gpt-4", "-c", "rpm=1").out
    events = shell("audit", "list", "-e", "project-1", "--output", "json").json
    assert [(event["action"], event["principal"]) for event in events["events"]][:1] == [
        ("bucket_topped_up", "night shift")
    ]


@dynamodb_first
def test_tenants_do_not_see_each_other(shell, monkeypatch):
    shell("namespace", "register", "tenant-a", "tenant-b")
    shell("resource", "set-defaults", "gpt-4", "-l", "rpm:5", "-N", "tenant-a")
    assert "gpt-4" in shell("resource", "list", "-N", "tenant-a").out
    assert shell("resource", "list", "-N", "tenant-b").out == ""
    with monkeypatch.context() as environment:
        environment.setenv("ZAEL_NAMESPACE", "tenant-a")
        assert "gpt-4" in shell("resource", "list").out
    deleted = shell("namespace", "delete", "tenant-a", "-y", "--output", "json").json
    shell.run("resource", "list", "-N", "tenant-a").error(1)
    assert "tenant-a" in shell("namespace", "orphans").out
    shell("namespace", "recover", deleted["namespace_id"], "--principal", "night shift")
    assert "gpt-4" in shell("resource", "list", "-N", "tenant-a").out
    assert "night shift" in shell("audit", "list", "-N", "tenant-a").out


@dynamodb_first
def test_the_policy_for_outages_is_kept_unless_it_is_named(cli):
    def policy(*options):
        changed = cli("system", "set-defaults", "-l", "rpm:1", *options, "--output", "json").json
        stored = cli("system", "get-defaults", "--output", "json").json
        assert changed["on_unavailable"] == stored["on_unavailable"]
        return stored["on_unavailable"]

    assert policy("--on-unavailable", "allow") == "allow"
    assert policy() == "allow"
    assert policy("--on-unavailable", "none") is None
    assert policy() is None


@dynamodb_first
def test_the_principal_is_user_and_host_unless_told(cli, monkeypatch):
    monkeypatch.setenv("LOGNAME", "alice")
    alice = f"alice@{socket.gethostname()}"
    cli("system", "set-defaults", "-l", "rpm:1")
    monkeypatch.setenv("ZAEL_PRINCIPAL", "deploy-bot")
    cli("system", "set-defaults", "-l", "rpm:2")
    cli("system", "set-defaults", "-l", "rpm:3", "--principal", "bob")
    events = cli("audit", "list", "--system", "--output", "json").json["events"]
    assert [each["principal"] for each in events] == ["bob", "deploy-bot", alice, "setup"]


@dynamodb_first
def test_entity_show_says_where_each_limit_comes_from(cli):
    data = cli("entity", "show", "key-7", "--output", "json").json
    assert (data["exists"], data["parent_id"], data["cascade"]) == (True, "project-1", True)
    sources = {(each["entity_id"], each["resource"]): each["source"] for each in data["in_force"]}
    assert sources == {
        ("key-7", "gpt-4"): "entity",
        ("key-7", None): "system",
        ("project-1", "gpt-4"): "entity_default",
        ("project-1", None): "entity_default",
    }
    cli("entity", "set-limits", "project-1", "-r", "only-mine", "-l", "rpm:1")
    text = cli("entity", "show", "key-7").out
    assert "only-mine" in text
    assert "parent    project-1, charged by every acquire; registered; has limits of its" in text
    assert "project-1: entity, any resource" in text


@dynamodb_first
def test_a_model_id_is_a_resource_of_every_command(cli, opened):
    model = "us.anthropic.claude-3-5-sonnet-20241022-v2:0"
    assert cli("resource", "set-defaults", model, "-l", "rpm:5").code == 0
    assert cli("entity", "set-limits", "key-7", "-r", model, "-l", "rpm:2").code == 0
    with SyncRateLimiter(opened).acquire("key-7", model, {"rpm": 2}):
        pass
    assert model in cli("resource", "list").out
    (state,) = cli("bucket", "show", "key-7", model, "--output", "json").json["buckets"]
    assert (state["resource"], state["limit_name"]) == (model, "rpm")
    assert "LIMITED" in cli("explain", "key-7", model, "-c", "rpm=1").out
    assert len(cli("audit", "list", "--resource", model, "--output", "json").json["events"]) == 1
    assert cli("bucket", "reset", "key-7", model, "--yes").code == 0
    assert cli("resource", "delete-defaults", model, "--yes").code == 0


@dynamodb_first
def test_an_entity_is_moved_to_another_parent(cli, opened):
    cli("entity", "create", "project-2")
    moved = cli("entity", "set-parent", "key-7", "project-2", "--principal", "alice")
    assert moved.out == (
        "key-7: parent 'project-2', charged by every acquire "
        "(before: parent 'project-1', charged by every acquire)\n"
    )
    assert opened.get_entity("key-7").parent_id == "project-2"
    assert opened.get_bucket("key-7", "gpt-4", "rpm") is not None
    cli("entity", "set-parent", "key-7", "project-1", "--no-cascade")
    assert "project-1, not charged (no cascade)" in cli("entity", "show", "key-7").out
    assert (
        cli("entity", "set-parent", "key-7", "--none", "--output", "json").json["parent_id"] is None
    )
    assert opened.get_entity("key-7").cascade is False
    events = cli("audit", "list", "-e", "key-7", "--output", "json").json["events"]
    assert [event["principal"] for event in events if event["action"] == "parent_set"][
        -1
    ] == "alice"
    text = " ".join(cli("audit", "list", "-e", "key-7").out.split())
    assert "parent project-2 (was parent project-1)" in text
    assert "no parent (was parent project-1, not charged)" in text


@dynamodb_first
def test_entity_show_says_whether_the_parent_is_registered_and_has_limits(cli, opened):
    assert (
        cli("entity", "create", "key-8", "--parent", "projct-1", "--cascade", "--force").code == 0
    )
    text = cli("entity", "show", "key-8").out
    assert (
        "parent   projct-1, charged by every acquire; NOT registered: check the id; "
        "limited by the defaults\n"
    ) in text
    data = cli("entity", "show", "key-8", "--output", "json").json
    assert (data["parent_exists"], data["parent_limits"]) == (False, "defaults")
    data = cli("entity", "show", "key-7", "--output", "json").json
    assert (data["parent_exists"], data["parent_limits"]) == (True, "own")
    opened.delete_entity("project-1")
    opened.delete_system_defaults()
    opened.delete_resource_defaults("gpt-4")
    data = cli("entity", "show", "key-7", "--output", "json").json
    assert (data["parent_exists"], data["parent_limits"]) == (False, "none")


@dynamodb_first
def test_deleting_a_parent_names_its_children_and_what_becomes_of_them(cli, opened):
    for number in range(5):
        opened.create_entity(f"child-{number}", parent_id="project-1", cascade=number > 2)
    ran = cli("entity", "delete", "project-1", "--yes")
    assert ran.out == "deleted 'project-1'\n"
    assert "6 entities under it ('child-0', 'child-1', 'child-2', ...)" in ran.err
    assert "children that cascade charge 'project-1' under the defaults" in ran.err
    assert "zae-limiter entity set-parent" in ran.err
    assert cli("entity", "delete", "child-0", "--yes").err == ""


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("rpm:1/90s:5", Limit.custom("rpm", 5, 1, 90), "rpm 1/90s (burst 5)"),
        ("rpm:7/minute", Limit.per_minute("rpm", 7), "rpm 7/min"),
        ("rpm:7/m", Limit.per_minute("rpm", 7), "rpm 7/min"),
        ("rpm:7/week", Limit.custom("rpm", 7, 7, 7 * 86_400), "rpm 7/week"),
        ("rpm:7/2h", Limit.custom("rpm", 7, 7, 7200), "rpm 7/2h"),
    ],
)
def test_periods_of_any_length_are_taken_and_shown(cli, opened, text, limit, shown):
    assert shown in cli("entity", "set-limits", "key-7", "-l", text).out
    assert opened.get_limits("key-7") == [limit]
    assert shown.split()[1] in cli("entity", "get-limits", "key-7").out


@dynamodb_first
def test_bucket_show_tells_level_debt_wait_and_last_use(cli, engine):
    rpm, tpm = cli("bucket", "show", "key-7", "gpt-4", "--output", "json").json["buckets"]
    assert rpm["limit_name"] == "rpm"
    assert rpm["debt_milli"] == 0
    assert -1_000_000 <= tpm["level_milli"] == -tpm["debt_milli"] < -990_000
    assert 59 < tpm["retry_after_seconds"] <= 60.06
    assert 179 < tpm["full_after_seconds"] <= 180
    assert tpm["consumed_milli"] == 3_000_000
    found = cli("bucket", "show", "key-7")
    assert tpm["last_used_hour"].endswith(":00:00Z")
    assert "last use on gpt-4: in the hour of 20" in found.out
    assert "a level below zero is a debt" in found.err


@dynamodb_first
def test_a_changed_limit_is_pointed_out_until_the_next_acquire(cli):
    cli("entity", "set-limits", "key-7", "-r", "gpt-4", "-l", "rpm:7", "-l", "tpm:7")
    found = cli("bucket", "show", "key-7")
    assert "limits have changed since the last acquire" in found.err


@dynamodb_first
def test_reset_and_top_up_mend_a_bucket_and_are_audited(cli, opened):
    cli("bucket", "top-up", "key-7", "gpt-4", "-a", "tpm=500", "--principal", "ops")
    assert -501 <= opened.get_bucket("key-7", "gpt-4", "tpm").tokens <= -480
    found = cli("bucket", "reset", "key-7", "gpt-4", "--yes", "--principal", "ops")
    assert "2,000  2,000" in found.out
    assert opened.get_bucket("key-7", "gpt-4", "tpm").tokens == 2000
    events = opened.get_audit_events("key-7", 2)
    assert [(event.action, event.principal) for event in events] == [
        ("bucket_reset", "ops"),
        ("bucket_topped_up", "ops"),
    ]


@dynamodb_first
def test_pause_shows_everywhere_until_it_is_lifted(cli, opened):
    opened.reset_bucket("key-7", "gpt-4")
    found = cli("bucket", "pause", "key-7", "gpt-4", "300", "--principal", "ops")
    assert "paused on gpt-4 until 20" in found.out
    [until] = {state.paused_until_ms for state in opened.get_buckets("key-7", "gpt-4")}
    for command in (("show", "key-7"), ("pause", "key-7", "gpt-4", "10")):
        shown = cli("bucket", *command, "--output", "json").json["buckets"]
        assert {each["paused_until"] for each in shown} == {iso_from_ms(until)}
        assert all(290 < each["retry_after_seconds"] <= 300 for each in shown)
    listed = cli("bucket", "list", "--sort", "wait", "--output", "json").json["buckets"]
    assert listed[0]["limits"][0]["paused_until"] == iso_from_ms(until)
    found = cli("explain", "key-7", "gpt-4")
    assert re.search(r"NO: paused, in (5 min|4 min 5)", found.out)
    assert re.search(
        r"LIMITED, retry in (5 min|4 min 5.*): the bucket of key-7 .*paused", found.out
    )
    found = cli("bucket", "pause", "key-7", "gpt-4", "0")
    assert "paused" not in found.out
    assert "ADMITTED" in cli("explain", "key-7", "gpt-4").out
    [lifted, paused] = cli("audit", "list", "-e", "key-7", "--limit", "2", "--output", "json").json[
        "events"
    ]
    assert (lifted["action"], paused["action"]) == ("bucket_resumed", "bucket_paused")
    assert (paused["principal"], paused["resource"]) == ("ops", "gpt-4")
    assert paused["details"] == {"until": iso_from_ms(until)}


@dynamodb_first
def test_a_bucket_that_was_never_used_can_be_paused(cli):
    found = cli("bucket", "pause", "key-8", "gpt-4", "30")
    assert "paused on gpt-4" in found.out
    assert "'key-8' was not known before this change (did you mean 'key-7'?)" in found.err


@dynamodb_first
def test_audit_events_page_newest_first(cli):
    for number in range(1, 4):
        cli("system", "set-defaults", "-l", f"rpm:{number}")
    first = cli("audit", "list", "--limit", "3", "--output", "json").json
    rest = cli("audit", "list", "--start-event-id", first["next_event_id"], "--output", "json").json
    ids = [event["event_id"] for event in first["events"] + rest["events"]]
    assert len(first["events"]) == 3
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == len(ids)
    assert rest["next_event_id"] is None
    subjects = {event["entity_id"] for event in rest["events"]}
    assert subjects == {"$SYSTEM", "$RESOURCE:gpt-4", "$NAMESPACE:default", "project-1", "key-7"}
    assert "rpm 3/min (was rpm 2/min)" in cli("audit", "list", "--system").out


@dynamodb_first
def test_the_life_of_a_namespace_outlasts_it_and_names_its_principals(cli):
    def change(*args, principal):
        found = cli("namespace", *args, "--principal", principal, "--output", "json").json
        return found.get("namespace_id")

    change("register", "tenant-b", principal="alice")
    namespace_id = change("delete", "tenant-b", "--yes", principal="bob")
    change("recover", namespace_id, principal="carol")
    change("delete", "tenant-b", "--yes", principal="dave")
    change("purge", namespace_id, "--yes", principal="erin")
    events = cli("audit", "list", "--of-namespace", "tenant-b", "--output", "json").json["events"]
    assert [(event["action"], event["principal"]) for event in events] == [
        ("namespace_purged", "erin"),
        ("namespace_deleted", "dave"),
        ("namespace_recovered", "carol"),
        ("namespace_deleted", "bob"),
        ("namespace_registered", "alice"),
    ]


@dynamodb_first
def test_entities_are_listed_with_their_parents_and_in_pages(cli, opened):
    for number in range(5):
        opened.create_entity(f"key-{number}", f"Key {number}", "project-2")
    text = cli("entity", "list").out
    assert {line.split()[0] for line in text.splitlines()[2:]} == {
        *("key-0", "key-1", "key-2", "key-3", "key-4", "key-7", "project-1")
    }
    assert any(line.split()[:3] == ["key-7", "project-1", "yes"] for line in text.splitlines())
    for narrower, count in (((), 7), (("--parent", "project-2"), 5)):
        found, cursor = [], []
        while cursor != ["--cursor", None]:
            args = ("entity", "list", "--limit", "2", *narrower, *cursor, "--output", "json")
            page = cli(*args).json
            found += [each["entity_id"] for each in page["entities"]]
            cursor = ["--cursor", page["next_cursor"]]
        assert len(found) == len(set(found)) == count
    assert found == sorted(found)
    assert "more: add --all, or --cursor" in cli("entity", "list", "--limit", "3").err
    assert "more" not in cli("entity", "list", "--limit", "7").err


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["resource", "get-defaults", "gpt4"], "did you mean 'gpt-4'?"),
        (["entity", "get-limits", "key-7", "-r", "gpt4"], "did you mean 'gpt-4'?"),
        (["resource", "delete-defaults", "gpt4"], "did you mean 'gpt-4'?"),
        (["entity", "list", "--with-custom-limits", "gpt4"], "did you mean 'gpt-4'?"),
        (["bucket", "show", "stranger"], "has no buckets (unused or expired)"),
        (["entity", "list", "--parent", "key-7"], "entity 'key-7' has no children"),
        (["usage", "list", "-e", "stranger"], "no usage is recorded"),
        (["audit", "list", "-e", "stranger"], "no audit events are stored"),
    ],
)
def test_nothing_found_is_no_failure_but_is_said(cli, args, shown):
    found = cli(*args)
    assert (found.code, found.out) == (0, "")
    assert shown in found.err


@dynamodb_first
def test_names_that_would_play_tricks_on_a_terminal_are_spelled_out(cli, opened):
    opened.create_entity("evil", "\x1b[31mred\nline", metadata={"k": "\x07"})
    text = cli("entity", "show", "evil").out
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31mred\\nline" in text


def test_a_narrow_encoding_does_not_end_a_command(cli, opened):
    opened.create_entity("zoë", "Zoë ☂", parent_id="project-1")
    for args in (("entity", "show", "zoë"), ("entity", "list", "--parent", "project-1")):
        found = run_command(*MODULE, *args, ZAEL_URL=cli.url, PYTHONIOENCODING="ascii")
        assert (found.returncode, found.stderr) == (0, "")
        assert "zo" in found.stdout


def test_memory_says_that_it_forgets(cli):
    found = cli("system", "set-defaults", "-l", "rpm:1", "--url", "memory://")
    assert found.code == 0
    assert "forgets everything" in found.err


def test_tables_of_a_pipe_are_as_wide_as_they_must_be(cli, opened):
    long_id = "key-" + "x" * 150
    opened.create_entity(long_id, parent_id="project-1")
    text = cli("entity", "list", "--parent", "project-1").out
    assert any(line.startswith(long_id) for line in text.splitlines())
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_no_traceback_unless_debugging(tmp_path):
    url = f"sqlite:///{tmp_path}/gone/limits.db"
    args = ("system", "set-defaults", "-l", "rpm:1", "--url", url)
    assert "create it" in only_line(run(*args).stderr)
    assert "Traceback" in run(*args, ZAEL_DEBUG=1).stderr


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("entity show ke", ["key-7"]),
        ("entity show key-7", ["key-7"]),
        ("entity list --parent pro", ["project-1"]),
        ("bucket show key-7 g", ["gpt-4"]),
        ("resource get-defaults ", ["gpt-4"]),
        ("resource list --namespace ten", ["tenant-a"]),
        ("namespace show ", ["default", "tenant-a"]),
        ("usage list --resource x", []),
        ("explain key-7 gpt-4 -c t", ["tpm="]),
        ("bucket top-up key-7 gpt-4 -a ", ["rpm=", "tpm="]),
        ("explain -c ", []),
        ("entity show --url sqlite:///gone.db k", []),
    ],
)
def test_the_shell_completes_names_of_the_store(cli, capsys, monkeypatch, words, offered):
    monkeypatch.setenv("_ZAE_LIMITER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"zae-limiter {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    with pytest.raises(SystemExit):
        cli()
    out, err = capsys.readouterr()
    assert [line.partition(",")[2] for line in out.splitlines() if line] == offered
    assert err == ""


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(kind):
    script = os.path.join(os.path.dirname(sys.executable), "zae-limiter")  # noqa: PTH118, PTH120
    found = run_command(script, _ZAE_LIMITER_COMPLETE=f"{kind}_source")
    assert "zae-limiter" in found.stdout
    if kind == "bash":
        found = run_command(
            script,
            _ZAE_LIMITER_COMPLETE="bash_complete",
            COMP_WORDS="zae-limiter entity de",
            COMP_CWORD=2,
        )
        assert found.stdout.split() == ["plain,delete-limits", "plain,delete"]


def test_a_policy_for_outages_is_set_alone(cli):
    cli("system", "delete-defaults", "--yes")
    refused = cli("system", "set-defaults", "--on-unavailable", "allow")
    assert refused.code == 2
    assert "no limits are stored" in refused.err
    cli("system", "set-defaults", "-l", "rpm:60", "-l", "tpm:1000/hour")
    before = cli("system", "get-defaults", "--output", "json").json
    found = cli("system", "set-defaults", "--on-unavailable", "allow", "--output", "json").json
    assert found == {
        "limits": before["limits"],
        "on_unavailable": "allow",
        "changed": True,
        "superseded": [],
    }
    assert "block" in cli("system", "set-defaults", "--on-unavailable", "block").out


def test_defaults_without_anything_to_set_are_wrong_usage(cli):
    found = cli("system", "set-defaults")
    assert found.code == 2
    assert "--limit" in found.err
    assert "--on-unavailable" in found.err
    found = cli("system", "set-defaults", "--on-unavailable", "allow", "--if-missing")
    assert found.code == 2
    assert "--limit" in found.err


@pytest.mark.parametrize("words", [["Alice Ltd"], ["alice", "--url", "memory://"]])
def test_the_name_of_a_person_is_the_display_name(cli, words):
    found = cli("entity", "create", "key-1", "--name", *words)
    assert found.code == 2
    assert "--display-name" in found.err
    assert "--display-name" not in cli("entity", "show", "key-1", "--name", "a b").err


@dynamodb_first
def test_setting_one_limit_lists_those_that_no_longer_apply(cli, opened):
    found = cli("entity", "set-limits", "project-1", "-r", "gpt-4", "-l", "tpm:80000")
    assert found.out.splitlines() == [
        "project-1 on 'gpt-4': tpm 80,000/min (before: none)",
        "no longer applies: rpm 100/min on gpt-4 (entity, any resource)",
    ]
    assert found.err.rstrip().endswith("to add it again: -l rpm:100/min --add")
    found = cli("resource", "set-defaults", "gpt-5", "-l", "tpm:5", "--output", "json").json
    assert found["superseded"] == [{"limit_name": "rpm", "resource": "gpt-5", "source": "system"}]
    found = cli("entity", "set-limits", "key-9", "-l", "tpm:5")
    assert found.out.splitlines()[1] == (
        "no longer applies: rpm 60/min on gpt-4 (resource defaults), rpm 60/min (system defaults)"
    )
    found = cli("system", "set-defaults", "-l", "tpm:5")
    assert found.out.splitlines()[1] == "no longer applies: rpm 60/min (system defaults)"
    assert "no longer applies" not in cli("system", "set-defaults", "-l", "tpm:5").out
    found = cli("system", "set-defaults", "--on-unavailable", "block")
    assert "no longer applies" not in found.out


@dynamodb_first
def test_a_limit_is_added_to_those_in_force(cli, opened):
    found = cli("entity", "set-limits", "project-1", "-r", "gpt-4", "-l", "tpm:80000", "--add")
    assert found.out == "project-1 on 'gpt-4': rpm 100/min, tpm 80,000/min (before: none)\n"
    assert found.err == ""
    found = cli("resource", "set-defaults", "gpt-4", "-l", "rpm:7", "--add", "--output", "json")
    assert [limit["name"] for limit in found.json["limits"]] == ["rpm", "tpm"]
    assert found.json["superseded"] == []
    cli("system", "set-defaults", "-l", "tpm:5", "--add")
    assert [limit.name for limit in opened.get_system_defaults()[0]] == ["rpm", "tpm"]
    refused = cli("entity", "set-limits", "key-9", "-l", "tpd:5/day", "--add")
    assert "those in force differ by resource; name a resource" in refused.error(2)
