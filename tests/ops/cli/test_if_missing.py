"""Setting only what is missing, from the shell."""

import json

from zae_limiter.naming import process_author


def test_what_is_stored_already_is_kept_if_only_missing_limits_are_to_be_set(cli):
    cli("system", "delete-defaults", "--yes")
    for command in (
        ("entity", "set-limits", "key-8", "-r", "gpt-5"),
        ("resource", "set-defaults", "gpt-5"),
        ("system", "set-defaults"),
    ):
        first = cli(*command, "-l", "rpm:1", "--if-missing")
        assert "rpm 1/min (before: none)" in first.out
        assert "rpm 1/min (unchanged)" in cli(*command, "-l", "rpm:2", "--if-missing").out
        assert "rpm 1/min (unchanged)" in cli(*command, "-l", "rpm:1").out
        kept = json.loads(cli(*command, "-l", "rpm:2", "--if-missing", "--output", "json").out)
        assert (kept["changed"], kept["limits"][0]["capacity"]) == (False, 1)
        assert "rpm 2/min (before: rpm 1/min)" in cli(*command, "-l", "rpm:2").out


def test_an_entity_that_exists_is_kept_if_only_a_missing_one_is_to_be_created(cli):
    assert "created" in cli("entity", "create", "key-8", "--display-name", "A", "--if-missing").out
    again = cli("entity", "create", "key-8", "--display-name", "B", "--if-missing")
    assert (again.code, again.out) == (0, "'key-8' exists already, so it is kept as it is\n")
    shown = cli("entity", "create", "key-8", "--if-missing", "--output", "json")
    assert json.loads(shown.out)["name"] == "A"
    assert cli("entity", "create", "key-8").code == 1


def test_changes_without_a_principal_name_user_and_host(cli, monkeypatch):
    monkeypatch.delenv("ZAEL_PRINCIPAL", raising=False)
    cli("entity", "create", "key-9")
    (event,) = json.loads(cli("audit", "list", "--entity-id", "key-9", "--output", "json").out)[
        "events"
    ]
    assert event["principal"] == process_author()
