"""Every command names a table of another form, and leaves it as it is."""

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.dynamodb import other_forms as forms
from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import temporary_table
from zae_limiter_provisioner.handler import handler

MANIFEST = "system:\n  limits:\n    rpm: 60\n"
COMMANDS = [
    ("deploy",),
    ("deploy", "--plan"),
    ("check",),
    ("check", "--output", "json"),
    ("upgrade", "--dry-run"),
    ("upgrade", "--yes"),
    ("status",),
    ("delete", "--yes"),
    ("version",),
    ("limits", "plan", "-f", "MANIFEST"),
    ("limits", "apply", "--yes", "-f", "MANIFEST"),
    ("limits", "diff", "-f", "MANIFEST"),
    ("limits", "export"),
    ("entity", "create", "key-1"),
    ("entity", "list"),
    ("entity", "set-limits", "key-1", "-l", "rpm:5"),
    ("system", "set-defaults", "-l", "rpm:5"),
    ("resource", "list"),
    ("bucket", "list"),
    ("namespace", "list"),
    ("namespace", "register", "tenant", "--create-table"),
    ("usage", "list"),
    ("audit", "list"),
]
TABLES = {
    "items": [forms.bucket("user-1", "gpt-4"), *forms.namespaces()],
    "record": [forms.version(), *forms.namespaces()],
}


@pytest.fixture
def command(capsys, unique_name):
    line = CommandLine(capsys, "")
    return lambda *words: line(*words, "--name", unique_name, "--endpoint-url", shared_endpoint())


@pytest.mark.parametrize("content", TABLES)
def test_every_command_names_a_foreign_table(command, unique_name, tmp_path, content):
    manifest = tmp_path / "limits.yaml"
    manifest.write_text(MANIFEST)
    with forms.table_of(unique_name, TABLES[content]):
        before = forms.content(unique_name)
        for command_words in COMMANDS:
            words = [str(manifest) if word == "MANIFEST" else word for word in command_words]
            line = command(*words).error(1)
            start = f"error: table {unique_name!r} is not one of this version of zae-limiter: it"
            assert line.startswith(start), (words, line)
            assert "; nothing was changed; choose another stack" in line
            assert line.endswith(
                f"zae-limiter limits export --from-table {unique_name} --form composite "
                f"--endpoint-url {shared_endpoint()}"
            )
            assert forms.content(unique_name) == before, words


@pytest.mark.each_value_once
@pytest.mark.parametrize("content", TABLES)
@pytest.mark.parametrize("action", ["plan", "apply", "diff"])
def test_the_provisioner_function_refuses_a_foreign_table(
    monkeypatch, unique_name, content, action
):
    monkeypatch.setenv("TABLE_NAME", unique_name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", shared_endpoint())
    with forms.table_of(unique_name, TABLES[content]):
        before = forms.content(unique_name)
        answer = handler({"action": action, "manifest": {"system": {"limits": {"rpm": 60}}}})
        assert "nothing was changed; choose another stack" in answer["error"]["message"]
        assert forms.content(unique_name) == before


def test_a_foreign_table_is_no_limiter_of_the_list(capsys, unique_name):
    line = CommandLine(capsys, "")
    with forms.table_of(unique_name, TABLES["record"]):
        listed = line("list", "--output", "json", "--endpoint-url", shared_endpoint()).json
    assert unique_name not in {each["stack_name"] for each in listed}


def test_a_newer_schema_is_named_by_check_and_upgrade(command, unique_name):
    record = forms.item("_/SYSTEM#", "#VERSION", document='{"schema_version": 99}')
    with forms.table_of(unique_name, [record]):
        before = forms.content(unique_name)
        checked = command("check")
        assert (checked.code, "schema       99" in checked.out) == (1, True), checked.out
        assert "update zae-limiter" in checked.err
        for words in (
            ("upgrade", "--dry-run"),
            ("upgrade", "--yes"),
            ("deploy",),
            ("entity", "list"),
        ):
            line = command(*words).error(1)
            assert "schema 99" in line
            assert "nothing was changed; update zae-limiter" in line
        assert forms.content(unique_name) == before


def test_an_empty_table_fits(capsys):
    line = CommandLine(capsys, "")
    with temporary_table() as name:
        place = ("--name", name, "--endpoint-url", shared_endpoint())
        for words in (("check",), ("upgrade", "--dry-run"), ("status",), ("deploy",), ("check",)):
            said = line(*words, *place)
            assert said.code == 0, said.err


def test_check_still_names_a_missing_table(command):
    assert "there is no limiter named" in command("check").error(1)
