"""``zae-limiter limits``: manifests from files, folders and stdin, plans, questions, exit codes."""

import io
import json

import pytest
import yaml

from tests.ops.cli.stores import on_both_engines, sqlite_first
from tests.ops.cli.terminal import ANSI, COLOUR, run, terminal
from zae_limiter import Limit, SyncRepository

MANIFEST = """\
system:
  limits: {rpm: 60, tpm: 1000/min:2000}
resources:
  gpt-4: {limits: {rpm: 10}}
entities:
  key-1: {parent: team, cascade: true, limits: {rpm: 5/hour}}
"""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(MANIFEST)
    return path


@sqlite_first
def test_from_an_empty_store_to_drift_and_back(shell, manifest, engine):
    shell("namespace", "register", "default")
    planned = shell("limits", "plan", "-f", manifest).out
    assert planned.splitlines() == [
        "+ system",
        "    + rpm 60/min",
        "    + tpm 1,000/min (burst 2,000)",
        "+ resource gpt-4",
        "    + rpm 10/min",
        "+ entity key-1",
        "    + parent 'team', charged by every acquire",
        "+ entity team",
        "+ entity key-1 on _default_",
        "    + rpm 5/hour",
        "",
        "plan: 5 to create, 0 to update, 0 to delete",
    ]
    applied = shell("limits", "apply", "-f", manifest, "--principal", "ci")
    assert applied.out == f"{planned}applied: 5 created, 0 updated, 0 deleted\n"
    assert shell("limits", "plan", "-f", manifest).out == "plan: no changes, 5 unchanged\n"
    assert shell("limits", "diff", "-f", manifest).out.startswith("no drift")
    shell("resource", "set-defaults", "gpt-4", "-l", "rpm:99", "--principal", "eve")
    shell("entity", "delete-limits", "key-1", "--yes", "--principal", "bob")
    changed, deleted = (
        line
        for line in shell("limits", "diff", "-f", manifest).out.splitlines()
        if "by hand," in line
    )
    assert changed.startswith("~ resource gpt-4: changed by hand, last change by eve at 20")
    assert deleted.startswith("- entity key-1 on _default_: deleted by hand, last change by bob")
    assert shell.run("limits", "diff", "-f", manifest, "--detailed-exitcode").code == 3
    assert shell.run("limits", "plan", "-f", manifest, "--detailed-exitcode").code == 3
    refused = shell.run("limits", "apply", "-f", manifest)
    assert refused.code == 2
    assert (
        "This changes 1 stored setting. There is no terminal for the question: add --yes"
        in refused.err
    )
    shell("limits", "apply", "-f", manifest, "--auto-approve")
    assert shell("limits", "plan", "-f", manifest, "--detailed-exitcode").code == 0
    assert shell("limits", "diff", "-f", manifest, "--detailed-exitcode").code == 0


@sqlite_first
def test_the_parent_that_a_manifest_names_takes_children(shell, manifest, engine):
    shell("namespace", "register", "default")
    shell("limits", "apply", "-f", manifest)
    assert "not registered" not in shell("entity", "show", "key-1").out
    shell("entity", "create", "key-2", "--parent", "team")
    assert shell("entity", "show", "team", "--output", "json").json["created_at"]


@sqlite_first
def test_an_export_is_a_manifest_that_changes_nothing(cli, tmp_path, engine):
    exported = cli("limits", "export")
    document = yaml.safe_load(exported.out)
    assert document["entities"]["key-7"]["parent"] == "project-1"
    assert document == cli("limits", "export", "--output", "json").json
    path = tmp_path / "exported.yaml"
    assert cli("limits", "export", "-o", path).out == f"manifest written to {path}\n"
    assert path.read_text() == exported.out
    out = cli("limits", "plan", "-f", path, "--detailed-exitcode")
    assert (out.code, out.out) == (0, "plan: no changes, 7 as declared and now managed\n")
    out = cli("limits", "apply", "-f", path)
    assert out.out.endswith("applied: no changes, 7 as declared and now managed\n")
    assert cli("limits", "plan", "-f", path).out == "plan: no changes, 7 unchanged\n"


def test_several_files_a_folder_and_stdin(shell, tmp_path, monkeypatch):
    shell("namespace", "register", "default")
    folder = tmp_path / "limits"
    folder.mkdir()
    (folder / "b.yml").write_text("resources: {b: {limits: {rpm: 1}}}")
    (folder / "a.json").write_text('{"resources": {"a": {"limits": {"rpm": 1}}}}')
    (folder / "notes.txt").write_text("no manifest")
    one = tmp_path / "one.yaml"
    one.write_text("resources: {c: {limits: {rpm: 1}}}")
    monkeypatch.setattr("sys.stdin", io.StringIO("resources: {d: {limits: {rpm: 1}}}"))
    files = ["-f", folder, "-f", one, "-f", "-"]
    planned = shell("limits", "plan", *files, "--output", "json").json
    assert [change["resource"] for change in planned["changes"]] == ["a", "b", "c", "d"]
    twice = shell.run("limits", "validate", "-f", folder, "-f", folder / "b.yml")
    assert twice.code == 2
    assert "resources.b: is declared by another file as well; keep one" in twice.err


def test_every_mistake_is_on_a_line_of_its_own(cli, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("sytem: {}\nresources: {a: {limits: {rpm: 0}}}\n")
    for command in ("plan", "apply", "diff", "validate"):
        out = cli("limits", command, "-f", path)
        assert (out.code, out.out) == (2, "")
        first, second, summary = out.err.splitlines()
        assert first == f"{path}:1:1: sytem: is not known here; did you mean 'system'?"
        assert second.startswith(f"{path}:2:26: resources.a.limits.rpm: must be greater than zero")
        assert summary == "error: the manifest has 2 mistakes; nothing was changed"
    out = cli("limits", "validate", "-f", path, "--output", "json")
    assert out.code == 2
    answer = json.loads(out.out)
    assert (answer["valid"], answer["problems"][0]["line"]) == (False, 1)
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not text in UTF-8" in cli("limits", "validate", "-f", path).error(2)
    assert "(did you mean 'wrong.yaml'?)" in cli(
        "limits", "plan", "-f", tmp_path / "wrong.yml"
    ).error(2)


def test_a_parent_that_looks_mistyped_is_pointed_out(cli, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("entities: {team-a: {limits: {rpm: 5}}, key: {parent: taem-a}}")
    note = "note: the parent 'taem-a' is not declared (did you mean 'team-a'?)\n"
    assert cli("limits", "validate", "-f", path).err == note


def test_the_namespace_comes_from_the_manifest(cli, opened, tmp_path, monkeypatch):
    path = tmp_path / "limits.yaml"
    path.write_text("namespace: tenant-a\nsystem: {limits: {rpm: 5}}")
    monkeypatch.setenv("ZAEL_NAMESPACE", "default")
    assert cli("limits", "apply", "-f", path).code == 0
    assert opened.namespace("tenant-a").get_system_defaults()[0] == [Limit.per_minute("rpm", 5)]
    path.write_text("system: {limits: {rpm: 6}}")
    assert cli("limits", "apply", "-f", path, "-N", "tenant-a", "--yes").code == 0
    assert opened.namespace("tenant-a").get_system_defaults()[0] == [Limit.per_minute("rpm", 6)]
    path.write_text("namespace: tenant-b\nsystem: {limits: {rpm: 6}}")
    assert "did you mean 'tenant-a'?" in cli("limits", "plan", "-f", path).error(1)


def test_another_apply_in_progress_is_named(cli, opened, manifest):
    lease = {"owner": "x", "until_ms": 10**14, "since": "2026-01-01T00:00:00Z", "principal": "ci"}
    opened.put_provisioner_state({"revision": "r1", "lease": lease})
    out = cli("limits", "apply", "-f", manifest, "--yes", "--lock-timeout", "0")
    assert out.code == 1
    assert "another apply is in progress, by ci since 2026-01-01T00:00:00Z" in out.err


def test_the_schema_can_be_published(cli, tmp_path):
    printed = json.loads(cli("limits", "schema").out)
    assert printed["title"] == "zae-limiter limits manifest"
    path = tmp_path / "limits.schema.json"
    assert cli("limits", "schema", "--file", path).out == f"schema written to {path}\n"
    assert json.loads(path.read_text()) == printed


def test_a_terminal_shows_colours_and_asks(url, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("resources: {gpt-4: {limits: {rpm: 7}}}")
    args = ("limits", "apply", "-f", str(path))
    for key, code, rate in ((b"n\n", 1, 60), (b"y\n", 0, 7)):
        with terminal(*args, ZAEL_URL=url) as screen:
            screen.read_until("[y/N]:")
            screen.press(key)
            assert screen.wait() == code
        assert COLOUR.search(screen.output)
        text = ANSI.sub("", screen.output)
        assert "~ resource gpt-4" in text
        assert "This changes 1 stored setting." in text
        with SyncRepository.open(url=url) as repository:
            assert repository.get_resource_defaults("gpt-4")[0].capacity == rate


def test_help_needs_neither_yaml_nor_the_library():
    assert run("limits", "plan", "--help").returncode == 0


@sqlite_first
def test_an_export_names_entities_that_are_special_in_yaml(shell, tmp_path, engine):
    names = ["<<", "=", "~", "null", "yes", "1e3", "2024-01-01", "- a", "a: b", "x'$(true)"]
    with SyncRepository.open(url=shell.url) as repository:
        for name in names:
            repository.create_entity(name, parent_id="<<" if name != "<<" else None, cascade=False)
            repository.set_limits(name, [Limit.per_minute("rpm", 5)])
    file = tmp_path / "exported.yaml"
    for output in ("yaml", "json"):
        shell("limits", "export", "--file", file, "--output", output)
        found = shell("limits", "plan", "-f", file, "--output", "json").json
        assert (found["changes"], found["adopt"]) == ([], 2 * len(names))


def test_an_export_writes_never_for_holds_that_do_not_expire(shell, tmp_path):
    quota = Limit.quota("tokens", 5, per="month", hold_ttl=None)
    budget = Limit.budget("usd", 5, per="month", hold_ttl=None)
    with SyncRepository.open(url=shell.url) as repository:
        repository.set_system_defaults([quota, budget])
    file = tmp_path / "exported.yaml"
    for output in ("yaml", "json"):
        shell("limits", "export", "--file", file, "--output", output)
        declared = yaml.safe_load(file.read_text())["system"]["limits"]
        assert [declared[name]["hold_ttl"] for name in ("tokens", "usd")] == ["never", "never"]
        assert shell("limits", "plan", "-f", file, "--output", "json").json["changes"] == []
    with SyncRepository.open(url=shell.url) as repository:
        repository.set_system_defaults([Limit.quota("tokens", 5, per="month")])
    planned = shell("limits", "plan", "-f", file).out
    assert "tokens 5/month@UTC -> tokens 5/month@UTC,hold=never" in planned


def test_a_plan_for_a_missing_file_is_for_an_empty_store(shell, manifest, tmp_path):
    file = tmp_path / "sub" / "new.db"
    store = ["--url", f"sqlite:///{file}"]
    assert "no store at" in shell.run("limits", "plan", "-f", manifest, *store).error(1)
    file.parent.mkdir()
    planned = shell("limits", "plan", "-f", manifest, *store)
    assert planned.out.endswith("plan: 5 to create, 0 to update, 0 to delete\n")
    assert f"note: there is no store at '{file}' yet" in planned.err
    assert list(file.parent.iterdir()) == []
    as_json = shell.run("limits", "plan", "-f", manifest, *store, "--output", "json")
    assert json.loads(as_json.out)["create"] == 5
    assert shell.run("limits", "plan", "-f", manifest, *store, "--detailed-exitcode").code == 3
    assert "no store at" in shell.run("limits", "diff", "-f", manifest, *store).error(1)
    assert shell("limits", "apply", "-f", manifest, *store).out.startswith(planned.out)
    assert file.exists()
    assert shell("limits", "plan", "-f", manifest, *store).out == "plan: no changes, 5 unchanged\n"


def test_a_plan_for_a_missing_file_fails_where_its_apply_would(shell, manifest, tmp_path):
    store = ["--url", f"sqlite:///{tmp_path}/new.db", "--namespace", "prod"]
    planned = shell.run("limits", "plan", "-f", manifest, *store)
    applied = shell.run("limits", "apply", "-f", manifest, *store)
    assert planned.code == applied.code == 1
    assert "'prod' is not registered" in planned.err
    assert "'prod' is not registered" in applied.err


def test_plans_show_quotas_soft_limits_and_modes(shell, tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(
        "resources:\n  gpt-4:\n    mode: shadow\n"
        "    limits: {tokens: 1M/month @ UTC, rpm: {capacity: 5, soft: true}}\n"
    )
    shell("namespace", "register", "default")
    assert shell("limits", "plan", "-f", path).out.splitlines()[:-2] == [
        "+ resource gpt-4",
        "    + rpm 5/min,soft",
        "    + tokens 1M/month@UTC",
        "+ mode on gpt-4",
        "    + shadow",
    ]
    shell("limits", "apply", "-f", path, "--yes")
    shell("resource", "set-mode", "gpt-4", "deny", "--until", "2099-01-01")
    assert (
        "    ~ shadow -> deny until 2099-01-01T00:00:00Z" in shell("limits", "diff", "-f", path).out
    )


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("text", ["", "{}", "namespace: default\n"])
def test_a_manifest_that_declares_nothing_is_refused(shell, tmp_path, manifest, text, engine):
    shell("namespace", "register", "default")
    shell("limits", "apply", "-f", manifest)
    empty = tmp_path / "empty.yaml"
    empty.write_text(text)
    for command in (["validate"], ["plan"], ["diff"], ["apply", "--yes"], ["cfn-template"]):
        refused = shell.run("limits", *command, "-f", empty)
        assert refused.code == 2
        assert "declares no setting" in refused.err
    assert shell("limits", "plan", "-f", manifest).out == "plan: no changes, 5 unchanged\n"


@pytest.fixture
def truncated(shell, tmp_path):
    """A manifest of one resource of the 40 that an earlier manifest has declared."""
    shell("namespace", "register", "default")
    models = {f"model-{number}": {"limits": {"rpm": 5}} for number in range(40)}
    whole, one = tmp_path / "whole.yaml", tmp_path / "one.yaml"
    whole.write_text(yaml.safe_dump({"resources": models}))
    one.write_text(yaml.safe_dump({"resources": {"model-0": models["model-0"]}}))
    shell("limits", "apply", "-f", whole)
    return one


@sqlite_first
def test_deleting_most_settings_needs_their_number(shell, truncated, engine):
    planned = shell("limits", "plan", "-f", truncated)
    assert "an apply needs --allow-deletions 39" in planned.err
    assert shell("limits", "plan", "-f", truncated, "--output", "json").json["existing"] == 40
    for allowed in ([], ["--allow-deletions", "38"]):
        refused = shell.run("limits", "apply", "-f", truncated, "--yes", *allowed)
        assert refused.code == 2
        assert "This deletes 39 of 40 managed settings" in refused.err
        assert "add --allow-deletions 39" in refused.err
    assert len(shell("resource", "list", "--output", "json").json["resources"]) == 40
    refused = shell.run("limits", "apply", "-f", truncated, "--allow-deletions", "39")
    assert "add --yes" in refused.err
    applied = shell("limits", "apply", "-f", truncated, "--yes", "--allow-deletions", "39")
    assert applied.out.endswith("applied: 0 created, 0 updated, 39 deleted, 1 unchanged\n")


@sqlite_first
def test_an_allowed_number_binds_small_deletions_too(shell, tmp_path, manifest, engine):
    shell("namespace", "register", "default")
    shell("limits", "apply", "-f", manifest)
    one = tmp_path / "one.yaml"
    one.write_text("resources: {gpt-4: {limits: {rpm: 10}}}")
    refused = shell.run("limits", "apply", "-f", one, "--yes", "--allow-deletions", "3")
    assert "add --allow-deletions 4" in refused.err
    shell("limits", "apply", "-f", one, "--yes")


def test_the_number_of_deletions_is_typed(shell, truncated):
    args = ("limits", "apply", "-f", str(truncated))
    for typed, code, left in ((b"y\n", 1, 40), (b"38\n", 1, 40), (b"39\n", 0, 1)):
        with terminal(*args, ZAEL_URL=shell.url) as screen:
            screen.read_until("type the number of deletions")
            screen.press(typed)
            assert screen.wait() == code, screen.output
        with SyncRepository.open(url=shell.url) as repository:
            assert len(repository.list_resources_with_defaults()) == left
