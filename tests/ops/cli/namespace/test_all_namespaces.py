"""``--all-namespaces``, and hints to other namespaces that hold what was looked for."""

import csv
import io
import json

import pytest

from tests.ops.cli.stores import dynamodb_first, on_both_engines, on_dynamodb
from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.store_url import parse_url

RPM = Limit.per_day("rpm", 100)  # slow, so that levels hardly change during a test
# Tokens by namespace and entity; namespace b is empty, and shared is in two of them.
USED = {
    "default": {"key-1": 5},
    "a": {"key-2": 7, "key-3": 90, "shared": 1},
    "b": {},
    "c": {"key-4": 99, "shared": 2},
}
KEYS = sorted((namespace, key) for namespace, keys in USED.items() for key in keys)


@pytest.fixture
def url(empty_url):
    with SyncRepository.open(url=empty_url) as repository:
        repository.register_namespaces([name for name in USED if name != "default"])
        for name, keys in USED.items():
            scoped = repository.namespace(name)
            scoped.set_system_defaults([RPM])
            limiter = SyncRateLimiter(scoped)
            for key, amount in keys.items():
                scoped.create_entity(key, parent_id="team" if key == "shared" else None)
                scoped.set_limits(key, [RPM], "gpt-4")
                with limiter.acquire(key, "gpt-4", {"rpm": amount}):
                    pass
    return empty_url


def pages_of(cli, *args, cursor="--cursor", field="next_cursor"):
    """Yield all pages of a listing."""
    key = None
    while True:
        page = cli(*args, *([cursor, key] if key else []), "--output", "json").json
        yield page
        key = page[field]
        if key is None:
            return


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("size", ["1", "2", "4", "100"])
@pytest.mark.parametrize(
    "listing",
    [
        ["bucket", "list"],
        ["entity", "list"],
        ["entity", "list", *("--with-custom-limits", "gpt-4")],
    ],
)
def test_pages_over_all_namespaces_join(cli, listing, size):
    args = (*listing, "--all-namespaces", "--limit", size)
    field = "buckets" if listing[0] == "bucket" else "entities"
    pages = [page[field] for page in pages_of(cli, *args)]
    assert all(len(page) <= int(size) for page in pages)
    found = [(each["namespace"], each["entity_id"]) for page in pages for each in page]
    registered = [key for key in found if key[1] != "team"]
    assert sorted(registered) == KEYS
    assert [namespace for namespace, _ in found] == sorted(namespace for namespace, _ in found)


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("size", ["1", "3", "100"])
def test_pages_of_usage_over_all_namespaces_join(cli, size):
    args = ("usage", "list", "--all-namespaces", "--limit", size)
    pages = [
        page["snapshots"] for page in pages_of(cli, *args, cursor="--next-key", field="next_key")
    ]
    assert all(len(page) <= int(size) for page in pages)
    found = [(each["namespace"], each["entity_id"]) for page in pages for each in page]
    assert sorted(found) == KEYS


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("listing", "field"),
    [
        ("bucket list", "next_cursor"),
        ("entity list --with-custom-limits gpt-4", "next_cursor"),
        ("usage list", "next_key"),
    ],
)
def test_a_full_page_with_nothing_but_empty_namespaces_behind_it_is_the_last(cli, listing, field):
    cli("namespace", "register", "empty-1", "empty-2")
    args = (*listing.split(), "--all-namespaces", "--output", "json", "--limit")
    assert cli(*args, len(KEYS)).json[field] is None
    assert cli(*args, len(KEYS) - 1).json[field] == "default#"
    assert cli(*args, 3).json[field] == "c#"  # namespace b is empty


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("listing", ["entity list", "entity list --with-custom-limits gpt-4"])
def test_a_page_behind_the_last_entity_gives_no_hint(cli, listing):
    cli("namespace", "register", "empty")
    ran = cli(*listing.split(), "--all-namespaces", "--cursor", "empty#")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("listing", ["bucket list", "entity list", "usage list"])
def test_tables_over_all_namespaces_name_them_first(cli, listing):
    found = cli(*listing.split(), "-A", "--limit", "2")
    heads, _, *rows = found.out.splitlines()

    assert heads.startswith("namespace")
    assert {row.split()[0] for row in rows} == {"a"}
    option = "--next-key" if "usage" in listing else "--cursor"
    assert "more: add" in found.err
    assert option in found.err


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("listing", ["bucket list", "entity list", "usage list", "usage summary"])
def test_one_namespace_shows_no_column_of_namespaces(cli, listing):
    assert "namespace" not in cli(*listing.split(), "-N", "a").out


@dynamodb_first
def test_the_most_used_buckets_of_all_namespaces(cli):
    page = cli("bucket", "list", "-A", "--sort", "used", "--limit", "3", "--output", "json").json
    assert [(each["namespace"], each["entity_id"]) for each in page["buckets"]] == [
        ("c", "key-4"),
        ("a", "key-3"),
        ("a", "key-2"),
    ]
    assert page["buckets_read"] == 6
    of_one = cli("bucket", "list", "-A", "--entity", "shared", "--output", "json").json["buckets"]
    assert [(each["namespace"], each["limits"][0]["capacity"]) for each in of_one] == [
        ("a", 100),
        ("c", 100),
    ]


@dynamodb_first
def test_the_largest_consumers_of_all_namespaces(cli):
    args = ("usage", "top", "-A", "--by", "rpm", "--limit", "3")
    ranked = cli(*args, "--output", "json").json["consumers"]
    assert [(each["namespace"], each["entity_id"]) for each in ranked] == [
        ("c", "key-4"),
        ("a", "key-3"),
        ("a", "key-2"),
    ]
    rows = cli(*args).out.splitlines()
    assert rows[0].split()[:3] == ["#", "namespace", "entity"]
    assert rows[2].split()[:4] == ["1", "c", "key-4", "99"]
    table = list(csv.DictReader(io.StringIO(cli(*args, "--output", "csv").out)))
    assert [row["namespace"] for row in table] == ["c", "a", "a"]


@dynamodb_first
def test_totals_of_all_namespaces_are_those_of_each(cli):
    found = cli("usage", "summary", "-A", "--output", "json").json["namespaces"]
    assert [(each["namespace"], each["total"]) for each in found] == [
        ("a", {"rpm": 98}),
        ("c", {"rpm": 101}),
        ("default", {"rpm": 5}),
    ]
    alone = cli("usage", "summary", "-N", "a", "--output", "json").json
    assert alone == found[0]
    shown = cli("usage", "summary", "-A")
    assert shown.out.splitlines()[2].split()[:3] == ["a", "rpm", "98"]
    assert "together: rpm 204" in shown.out
    rows = list(csv.DictReader(io.StringIO(cli("usage", "summary", "-A", "--output", "csv").out)))
    assert [(row["namespace"], row["total"]) for row in rows] == [
        ("a", "98"),
        ("c", "101"),
        ("default", "5"),
    ]


def test_csv_of_all_namespaces_names_them(cli):
    rows = list(csv.DictReader(io.StringIO(cli("usage", "list", "-A", "--output", "csv").out)))
    assert sorted((row["namespace"], row["entity_id"]) for row in rows) == KEYS


def test_a_page_of_all_namespaces_tells_entities_of_one_name_apart(cli):
    page = cli("usage", "list", "-A", "--output", "html").out
    assert "<td>a/shared</td>" in page
    assert "<td>c/shared</td>" in page
    ranking = cli("usage", "top", "-A", "--by", "rpm", "--output", "html").out
    assert "<td>c/shared</td>" in ranking


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("command", "namespaces"),
    [
        ("bucket list --entity key-4", "'c'"),
        ("bucket list --entity key-4 --sort used", "'c'"),
        ("bucket list --entity shared", "'a' and 'c'"),
        ("bucket show key-4", "'c'"),
        ("usage list --entity-id key-4", "'c'"),
        ("usage summary --entity-id shared", "'a' and 'c'"),
        ("entity list --parent team", "'a' and 'c'"),
        ("entity list --with-custom-limits gpt-4 --namespace b", "'a', 'c' and 'default'"),
        ("bucket list --namespace b", "'a', 'c' and 'default'"),
        ("usage top --namespace b", "'a', 'c' and 'default'"),
    ],
)
def test_a_hint_names_the_namespaces_that_hold_it(cli, command, namespaces):
    found = cli(*command.split())
    assert (found.code, found.out) == (0, "")
    noun = "namespaces" if " and " in namespaces else "namespace"
    has = "have" if " and " in namespaces else "has"
    assert f"{noun} {namespaces} {has} matches" in found.err
    words = command.replace("--namespace b", "").split()
    if command != "bucket show key-4":
        assert "--all-namespaces" in found.err
        assert cli(*words, "--all-namespaces").out
    if namespaces == "'c'":
        assert "--namespace c" in found.err
        assert cli(*words, "--namespace", "c").out


@dynamodb_first
def test_an_unknown_entity_is_named_with_the_namespace_that_has_it(cli):
    error = cli("entity", "show", "key-4").error(1)
    assert "entity 'key-4' does not exist" in error
    assert error.endswith("namespace 'c' has it: use --namespace c")
    assert cli("entity", "show", "key-4", "--namespace", "c").code == 0
    assert "namespace" not in cli("entity", "show", "nobody").error(1)


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    "command", ["bucket list --entity nobody", "usage list -e nobody", "entity list --parent none"]
)
def test_no_hint_where_no_namespace_holds_it(cli, command):
    assert "namespace" not in cli(*command.split()).err


@pytest.mark.each_value_once
@on_dynamodb
@pytest.mark.parametrize(
    "command",
    [
        "bucket list",
        "bucket show key-4",
        "entity list",
        "entity list --with-custom-limits gpt-4",
        "usage list",
        "usage summary",
        "usage top",
    ],
)
@pytest.mark.parametrize("may_list", [True, False])
def test_who_may_read_one_namespace_gets_no_hint_to_others(cli, url, command, may_list):
    with SyncRepository.open(url=url) as repository:
        own_id = repository.namespace("b").namespace_id
        other_ids = [repository.namespace(name).namespace_id for name in USED if name != "b"]

    def is_forbidden(request):
        body = json.dumps(request.body)
        if not may_list and request.operation == "Query" and own_id not in body:
            return True
        return any(f'"{other_id}/' in body for other_id in other_ids)

    with Proxy(shared_endpoint()) as proxy:
        proxy.fault("deny", when=is_forbidden)
        own = ("--url", store_url(parse_url(url).place, proxy.url), "--namespace", "b")
        ran = cli(*command.split(), *own)
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "have matches" not in ran.err
    assert "has matches" not in ran.err


@dynamodb_first
def test_a_hint_of_a_ranking_names_who_used_that_limit(cli):
    assert (
        "'a', 'c' and 'default' have matches" in cli("usage", "top", "-N", "b", "--by", "rpm").err
    )
    assert "matches" not in cli("usage", "top", "-N", "b", "--by", "tpm").err


def test_a_namespace_deleted_between_two_pages_is_skipped(cli):
    args = ("bucket", "list", "-A", "--limit", "2", "--output", "json")
    page = cli(*args).json
    assert page["next_cursor"].startswith("a#")
    cli("namespace", "delete", "a", "--yes")
    rest = cli(*args, "--cursor", page["next_cursor"]).json
    assert [each["namespace"] for each in rest["buckets"]] == ["c", "c"]


@pytest.mark.parametrize("command", ["bucket list", "entity list", "usage list", "usage top"])
def test_one_namespace_and_all_contradict_each_other(cli, command):
    line = cli(*command.split(), "-A", "--namespace", "a").error(2)
    assert "leave out --namespace" in line


def test_the_variable_of_the_namespace_does_not_contradict(cli, monkeypatch):
    monkeypatch.setenv("ZAEL_NAMESPACE", "b")
    assert len(cli("entity", "list", "-A", "--output", "json").json["entities"]) == 6


@pytest.mark.parametrize(
    "args", [["bucket", "list", "--cursor", "x"], ["usage", "list", "--next-key", "x"]]
)
def test_a_cursor_of_another_kind_is_wrong_usage(cli, args):
    assert "previous page" in cli(*args, "-A").error(2)
