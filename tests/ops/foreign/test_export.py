"""Limits and entities of a table of another form, exported and applied to a new table."""

import json

import pytest
import yaml
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.inprocess import CommandLine
from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb import other_forms as forms
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import Limit, OnUnavailable, SyncRepository

COMPOSITE = [
    *forms.namespaces(),
    *forms.namespaces("tenant-b", "zz9"),
    forms.version(),
    forms.config("SYSTEM#", on_unavailable="allow", **forms.limits(rpm=(1000, 1000, 60))),
    forms.config(
        "RESOURCE#gpt-4",
        resource="gpt-4",
        **forms.limits(rpm=(500, 500, 60), tpm=(75_000, 50_000, 60), my_own_rpd=(9, 9, 86_400)),
        **forms.limits(wcu=(1000, 1000, 1)),
    ),
    forms.config(
        "ENTITY#key-1",
        "#CONFIG#gpt-4",
        entity_id="key-1",
        resource="gpt-4",
        GSI3PK="a7x3kq/ENTITY_CONFIG#gpt-4",
        GSI3SK="key-1",
        **forms.limits(rpm=(20, 10, 60)),
    ),
    forms.config("ENTITY#key-2", "#CONFIG#_default_", **forms.limits(rpm=(7, 7, 3600))),
    forms.entity("project-1", cascade=False, name="The project"),
    forms.entity("key-1", parent_id="project-1", cascade=True, metadata={"M": {"a": {"S": "b"}}}),
    forms.entity("key-2", parent_id="project-1", cascade=False),
    forms.entity("alone", parent_id={"NULL": True}),
    forms.bucket("key-1", "gpt-4"),
    forms.bucket("key-2", "gpt-4"),
    forms.item("a7x3kq/SYSTEM#", "#RESOURCES", resources={"SS": ["gpt-4"]}),
    forms.item("a7x3kq/SYSTEM#", "#PROVISIONER", managed_system={"BOOL": True}),
    forms.item("a7x3kq/ENTITY#key-1", "#USAGE#gpt-4#2025-01-01T00:00:00Z", rpm=5),
    forms.item("a7x3kq/AUDIT#key-1", "#AUDIT#2025", action="entity_created"),
    forms.config("RESOURCE#gpt-4", ns="zz9", **forms.limits(rpm=(3, 3, 60))),
]
MANIFEST = {
    "namespace": "default",
    "system": {"on_unavailable": "allow", "limits": {"rpm": {"capacity": 1000}}},
    "resources": {
        "gpt-4": {
            "limits": {
                "my_own_rpd": {"capacity": 9, "refill_period": 86_400},
                "rpm": {"capacity": 500},
                "tpm": {"capacity": 50_000, "burst": 75_000},
            }
        }
    },
    "entities": {
        "alone": {"registered": True},
        "key-1": {
            "parent": "project-1",
            "cascade": True,
            "resources": {"gpt-4": {"limits": {"rpm": {"capacity": 10, "burst": 20}}}},
        },
        "key-2": {
            "parent": "project-1",
            "cascade": False,
            "resources": {"_default_": {"limits": {"rpm": {"capacity": 7, "refill_period": 3600}}}},
        },
    },
}
PER_LIMIT = [
    forms.item("SYSTEM#", "#VERSION", version="0.1.0"),
    forms.old_entity("project-1"),
    forms.old_entity("key-1", parent_id="project-1"),
    forms.per_limit("key-1", "gpt-4", "rpm", 1_000_000, 1_500_000, 1_000_000, 60),
    forms.per_limit("key-1", "gpt-4", "tpm", 100_000_000, 100_000_000, 100_000_000, 60),
    forms.old_bucket("key-1", "gpt-4", "rpm"),
    forms.item("AUDIT#key-1", "#AUDIT#2025", action="x"),
]


@pytest.fixture
def command(capsys):
    return CommandLine(capsys, "")


@pytest.fixture
def export(command, unique_name):
    """Export the table of the test, and prove that it was not changed."""

    def run(items, *options, form="composite", endpoint=None):
        with forms.table_of(unique_name, items):
            before = forms.content(unique_name)
            source = ("--from-table", unique_name, "--form", form)
            place = ("--endpoint-url", endpoint or shared_endpoint())
            said = command("limits", "export", *source, *options, *place)
            assert forms.content(unique_name) == before
        return said

    return run


def test_limits_and_entities_are_carried_over(export):
    said = export(COMPOSITE)
    assert said.code == 0, said.err
    assert yaml.safe_load(said.out) == MANIFEST


def test_the_export_says_what_it_leaves_behind(export, unique_name):
    lines = export(COMPOSITE).err.splitlines()
    assert lines[0].startswith(f"note: {unique_name} was read and not changed: 20 items, ")
    assert lines[0].endswith(" read units")
    assert lines[1:] == [
        "note: stored amounts were taken as tokens; compare one limit, or give --unit",
        "not carried over: the present levels of 2 buckets",
        "not carried over: 1 record of usage",
        "not carried over: 1 audit event",
        "not carried over: names or metadata of 2 entities",
        "not carried over: 1 item of other namespaces",
    ]


def test_applied_to_a_new_table_the_limits_and_parents_are_there(export, command, tmp_path):
    file = tmp_path / "limits.yaml"
    assert export(COMPOSITE, "--file", file).code == 0
    with temporary_table() as name:
        place = ("--name", name, "--endpoint-url", shared_endpoint())
        assert command("deploy", *place).code == 0
        assert command("limits", "apply", "-f", file, *place).code == 0
        with SyncRepository.open(url=store_url(name, shared_endpoint())) as repository:
            limits, policy = repository.get_system_defaults()
            assert (limits, policy) == ([Limit.per_minute("rpm", 1000)], OnUnavailable.ALLOW)
            assert {*repository.get_resource_defaults("gpt-4")} == {
                Limit.per_minute("rpm", 500),
                Limit.per_minute("tpm", 50_000, burst=75_000),
                Limit.per_day("my_own_rpd", 9),
            }
            assert repository.get_limits("key-1", "gpt-4") == [
                Limit.per_minute("rpm", 10, burst=20)
            ]
            assert repository.get_limits("key-2") == [Limit.per_hour("rpm", 7)]
            children = {each.id: each.cascade for each in repository.get_children("project-1")}
            assert children == {"key-1": True, "key-2": False}
            assert repository.get_entity("alone") is not None
            assert repository.get_entity("project-1").parent_id is None
        again = command("limits", "plan", "-f", file, *place, "--detailed-exitcode")
        assert again.code == 0, again.out


def test_another_namespace_is_named(export):
    said = export(COMPOSITE, "--namespace", "tenant-b", "--output", "json")
    assert json.loads(said.out) == {
        "namespace": "tenant-b",
        "resources": {"gpt-4": {"limits": {"rpm": {"capacity": 3}}}},
    }


def test_an_unknown_namespace_is_an_error_that_names_the_others(export):
    line = export(COMPOSITE, "--namespace", "tenant-x").error(2)
    assert "it has: default, tenant-b" in line


def test_amounts_may_be_millitokens(export):
    said = export(COMPOSITE, "--namespace", "tenant-b", "--unit", "millitokens")
    assert said.code == 1
    assert "l_rpm_cp: must be a multiple of 1000" in said.err
    stored = forms.config("RESOURCE#api", **forms.limits(rpm=(5000, 4000, 60)))
    said = export([*forms.namespaces(), stored], "--unit", "millitokens")
    limits = yaml.safe_load(said.out)["resources"]["api"]["limits"]
    assert limits == {"rpm": {"capacity": 4, "burst": 5}}


def test_the_older_form_has_an_item_for_each_limit(export):
    said = export(PER_LIMIT, form="per-limit")
    assert said.code == 0, said.err
    rpm, tpm = {"capacity": 1000, "burst": 1500}, {"capacity": 100_000}
    key = {
        "parent": "project-1",
        "cascade": False,
        "resources": {"gpt-4": {"limits": {"rpm": rpm, "tpm": tpm}}},
    }
    assert yaml.safe_load(said.out) == {"entities": {"key-1": key}}
    assert "not carried over: the cascade of 1 entity with a parent" in said.err
    assert "declare it: cascade: true" in said.err
    assert "the present levels of 1 bucket" in said.err


BAD = {
    "a limit without an amount": (
        forms.config("RESOURCE#bad", l_rpm_cp=5, l_rpm_rp=60),
        "a7x3kq/RESOURCE#bad #CONFIG: l_rpm_ra: is missing (got None)",
    ),
    "a limit of text": (
        forms.config("RESOURCE#bad", l_rpm_cp="many", l_rpm_ra=1, l_rpm_rp=60),
        "l_rpm_cp: must be a whole number",
    ),
    "half a token": (
        forms.config("RESOURCE#bad", l_rpm_cp={"N": "1.5"}, l_rpm_ra=1, l_rpm_rp=60),
        "l_rpm_cp: must be a whole number",
    ),
    "a limit that never refills": (
        forms.config("RESOURCE#bad", **forms.limits(rpm=(5, 0, 60))),
        "limit.refill_amount: must be greater than zero",
    ),
    "a name that is not ours": (
        forms.config("RESOURCE#bad", **{"l_r pm_cp": 1, "l_r pm_ra": 1, "l_r pm_rp": 1}),
        "limit.name",
    ),
    "a resource that is not ours": (
        forms.config("RESOURCE#b d", **forms.limits(rpm=(5, 5, 60))),
        "resource: ",
    ),
    "too many limits": (
        forms.config("RESOURCE#bad", **forms.limits(**{f"l{n}": (1, 1, 1) for n in range(33)})),
        "may hold at most 32 limits",
    ),
    "an entity with a strange flag": (
        forms.entity("bad", cascade="yes"),
        "cascade: must be a flag",
    ),
    "an entity with a strange parent": (
        forms.entity("bad", parent_id=5),
        "parent_id: must be a text",
    ),
    "an entity with a bad id": (forms.entity("$bad"), "entity_id: "),
    "a policy that is not ours": (
        forms.config("SYSTEM#", on_unavailable="maybe"),
        "on_unavailable: must be 'allow' or 'block'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_item_is_reported_and_the_others_are_written(export, case):
    bad, reason = BAD[case]
    good = forms.config("RESOURCE#good", **forms.limits(rpm=(5, 5, 60)))
    said = export([*forms.namespaces(), bad, good])
    assert said.code == 1
    assert yaml.safe_load(said.out) == {
        "namespace": "default",
        "resources": {"good": {"limits": {"rpm": {"capacity": 5}}}},
    }
    (problem,) = [line for line in said.err.splitlines() if reason in line]
    assert problem.startswith("not carried over: a7x3kq/")
    assert said.err.splitlines()[-1] == (
        "error: 1 setting could not be carried over; the manifest has all others; add the missing "
        "ones by hand"
    )


def test_a_disabled_resource_is_named_and_the_export_fails(export):
    disabled = forms.config("RESOURCE#gpt-4", disabled=True, **forms.limits(rpm=(5, 5, 60)))
    enabled = forms.config("RESOURCE#gpt-5", disabled=False, **forms.limits(rpm=(5, 5, 60)))
    said = export([*forms.namespaces(), disabled, enabled])
    assert said.code == 1
    assert list(yaml.safe_load(said.out)["resources"]) == ["gpt-4", "gpt-5"]
    [line] = [line for line in said.err.splitlines() if "disabled" in line]
    assert line.endswith("RESOURCE#gpt-4 #CONFIG: is disabled; stop its calls by the mode deny")


def test_a_level_with_one_bad_limit_is_left_out_as_a_whole(export):
    """With the other limit alone, the entity would be allowed more than before."""
    said = export(
        [*PER_LIMIT, forms.item("ENTITY#key-1", "#LIMIT#gpt-4#rpd", capacity=1)], form="per-limit"
    )
    assert said.code == 1
    assert yaml.safe_load(said.out)["entities"]["key-1"].keys() == {"parent", "cascade"}


def test_parents_in_a_circle_are_left_out(export, command, tmp_path):
    """A manifest that has them is refused."""
    file = tmp_path / "limits.yaml"
    circle = [forms.entity(child, parent_id=parent) for child, parent in ("ab", "bc", "ca", "xx")]
    said = export([*forms.namespaces(), *circle, forms.entity("d", parent_id="a")], "-o", file)
    assert said.code == 1
    assert "not carried over: the parent of 'x' makes it its own ancestor" in said.err
    assert command("limits", "validate", "-f", file).code == 0
    assert yaml.safe_load(file.read_text())["entities"]["d"]["parent"] == "a"


def test_a_table_of_ours_has_an_export_of_its_own(command):
    with temporary_table() as name:
        place = ("--endpoint-url", shared_endpoint())
        assert command("deploy", "--name", name, *place).code == 0
        for form in ("composite", "per-limit"):
            source = ("--from-table", name, "--form", form)
            line = command("limits", "export", *source, *place).error(2)
            assert f"export it: zae-limiter limits export --name {name}" in line


@pytest.mark.parametrize("namespace_id", [5, {"NULL": True}])
def test_a_bad_registration_is_no_namespace(export, namespace_id):
    bad = forms.item("_/SYSTEM#", "#NAMESPACE#default", namespace_id=namespace_id)
    assert "is no namespace of table" in export([bad]).error(2)


def test_many_bad_items_are_counted(export):
    bad = [forms.entity(f"key-{number}", cascade=1) for number in range(60)]
    said = export([*forms.namespaces(), *bad])
    assert (said.code, said.err.count("cascade: must be a flag")) == (1, 50)
    assert "not carried over: 10 other settings" in said.err
    assert "error: 60 settings could not be carried over" in said.err


def test_unknown_attributes_and_items_are_named(export):
    items = [
        *forms.namespaces(),
        forms.entity("key-1", tier="gold"),
        forms.entity("key-2", tier="free"),
        forms.item("a7x3kq/ENTITY#key-1", "#PLAN", x=1),
        forms.item("stray", "item"),
        forms.item("a7x3kq/RESOURCE#", "#CONFIG", **forms.limits(rpm=(1, 1, 1))),
    ]
    said = export(items)
    assert said.code == 0
    assert "not carried over: the attribute 'tier' of 2 items" in said.err
    assert "not carried over: 3 items of an unknown kind, such as " in said.err
    assert "'a7x3kq/ENTITY#key-1 #PLAN'" in said.err
    assert yaml.safe_load(said.out)["entities"].keys() == {"key-1", "key-2"}


def test_the_wrong_form_finds_nothing_and_says_so(export):
    line = export(COMPOSITE, form="per-limit").error(1)
    assert "has neither limits nor entities in the form per-limit: 20 items" in line
    assert "try another form: composite" in line
    line = export(PER_LIMIT).error(2)
    assert "is no namespace of table" in line


def test_pages_beyond_a_megabyte_are_all_read(export, unique_name):
    """DynamoDB ends a page at 1 MB; each of these items has 300 KB."""
    large = [
        forms.entity(f"key-{number}", parent_id="project", metadata="x" * 300_000)
        for number in range(8)
    ]
    with Proxy(shared_endpoint()) as proxy, proxy.measure() as seen:
        said = export([*forms.namespaces(), *large], "--read-units", 10_000, endpoint=proxy.url)
    entities = yaml.safe_load(said.out)["entities"]
    assert entities.keys() == {*(f"key-{number}" for number in range(8)), "project"}
    assert seen.operations["Scan"] >= 3
    assert set(seen.operations) == {"GetItem", "Scan"}
    assert (seen.wcu, "10 items" in said.err) == (0, True)
    units = seen.rcu - 1  # of the GetItem
    assert 250 <= units <= 320, "half a unit for each 4 KB of 2.4 MB"
    assert f"{units:,.1f} read units" in said.err


def test_many_small_items_are_read_in_pages_at_the_given_rate(export):
    items = [forms.entity(f"key-{number:04}") for number in range(1200)]
    with Proxy(shared_endpoint()) as proxy, proxy.measure() as seen, Stopwatch() as watch:
        said = export([*forms.namespaces(), *items], "--read-units", 10, endpoint=proxy.url)
    assert len(yaml.safe_load(said.out)["entities"]) == 1200
    assert seen.operations["Scan"] == 3
    paused = seen.rcu - 1 - 10  # the last page is not followed by a pause
    assert watch.seconds > paused / 10


def test_a_throttled_page_is_read_again(export):
    with Proxy(shared_endpoint()) as proxy, proxy.fault("throttle", operation="Scan", times=2):
        assert yaml.safe_load(export(COMPOSITE, endpoint=proxy.url).out) == MANIFEST


def test_an_export_without_permission_says_so(export):
    with Proxy(shared_endpoint()) as proxy, proxy.fault("deny", operation="Scan"):
        line = export(COMPOSITE, endpoint=proxy.url).error(1)
    assert "Scan" in line


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--form", "composite"), "are for --from-table"),
        (("--read-units", "5"), "are for --from-table"),
        (("--from-table", "old-app"), "--from-table needs --form"),
        (("--from-table", "old-app", "--form", "other"), "is not one of"),
        (("--from-table", "a b", "--form", "composite"), "is no name of a DynamoDB table"),
        (("--from-table", "old", "--form", "composite", "--name", "new"), "leave out --name"),
        (("--from-table", "old", "--form", "composite", "--read-units", "0"), "--read-units"),
        (("--from-table", "old", "--form", "composite", "--read-units", "nan"), "--read-units"),
    ],
)
def test_wrong_usage_is_told(command, options, reason):
    assert reason in command("limits", "export", *options).error(2)


def test_a_missing_table_is_named(command, unique_name):
    source = ("--from-table", unique_name, "--form", "per-limit")
    line = command("limits", "export", *source, "--endpoint-url", shared_endpoint()).error(1)
    assert unique_name in line
