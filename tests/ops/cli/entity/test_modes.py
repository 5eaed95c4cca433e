"""``entity set-mode`` and ``resource set-mode``, and the places that show modes."""

from tests.ops.cli.stores import sqlite_first


@sqlite_first
def test_modes_are_set_shown_and_removed(cli, opened):
    first = cli("entity", "set-mode", "key-7", "bypass", "-r", "gpt-4", "--until", "2099-01-01")
    assert first.out == (
        "key-7 on gpt-4: bypass until 2099-01-01T00:00:00Z (before: no mode of its own)\n"
    )
    again = cli("entity", "set-mode", "key-7", "bypass", "-r", "gpt-4", "--until", "2099-01-01")
    assert again.out.endswith("(unchanged)\n")
    cli("resource", "set-mode", "gpt-4", "shadow", "--principal", "ada")
    assert cli("resource", "get-defaults", "gpt-4").out.endswith("mode: shadow\n")
    assert "mode: shadow" in cli("resource", "list").out
    shown = cli("bucket", "show", "key-7")
    assert "mode on gpt-4: bypass until 2099-01-01T00:00:00Z (entity, this resource)\n" in shown.out
    bucket = cli("bucket", "show", "key-7", "--output", "json").json["buckets"][0]
    assert (bucket["mode"], bucket["mode_until"]) == ("bypass", "2099-01-01T00:00:00Z")
    rows = cli("entity", "show", "key-7", "--output", "json").json["in_force"]
    found = {(row["entity_id"], row["resource"]): row["mode"] for row in rows}
    assert found["key-7", "gpt-4"] == "bypass"
    cli("entity", "set-mode", "key-7", "inherit", "-r", "gpt-4")
    assert "mode on gpt-4: shadow (resource defaults)" in cli("bucket", "show", "key-7").out
    assert opened.get_mode("gpt-4", "key-7") is None
    event = opened.get_audit_events("$RESOURCE:gpt-4")[0]
    assert (event.action, event.principal) == ("mode_set", "ada")


@sqlite_first
def test_an_entity_that_has_only_a_mode_is_known(cli):
    cli("entity", "set-mode", "stranger", "deny", "--force")
    assert "mode: deny (entity, any resource)" in cli("entity", "show", "stranger").out
    found = cli("entity", "set-mode", "stranger", "inherit", "--output", "json").json
    assert found == {
        "entity_id": "stranger",
        "resource": None,
        "mode": None,
        "until": None,
        "changed": True,
    }
