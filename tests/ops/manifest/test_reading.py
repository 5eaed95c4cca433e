"""Manifests from YAML and from plain data: shorthand, and every mistake with its place."""

import pickle
import subprocess
import sys

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_ops.manifest.declarations import LimitDecl, LimitsManifest
from zae_limiter_ops.manifest.problems import ManifestError
from zae_limiter_ops.manifest.reading import read_files
from zae_limiter_ops.manifest.targets import wanted_settings

DOCUMENTED = """\
namespace: default
system:
  on_unavailable: block
  limits:
    rpm:
      capacity: 1000
    tpm:
      capacity: 100000
resources:
  gpt-4:
    limits:
      rpm:
        capacity: 500
      tpm:
        capacity: 50000
entities:
  user-premium:
    resources:
      gpt-4:
        limits:
          rpm:
            capacity: 1000
"""


def limits_of(text):
    """The limits of a resource that is declared with these limits."""
    manifest = LimitsManifest.from_yaml(f"resources: {{api: {{limits: {text}}}}}")
    (setting,) = wanted_settings(manifest).values()
    return list(setting.limits)


def problems_of(text):
    with pytest.raises(ManifestError) as caught:
        LimitsManifest.from_yaml(text, "limits.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_the_documented_manifest_is_read():
    manifest = LimitsManifest.from_yaml(DOCUMENTED)
    settings = {str(target): value for target, value in wanted_settings(manifest).items()}
    assert list(settings) == [
        "system",
        "system on_unavailable",
        "resource gpt-4",
        "entity user-premium on gpt-4",
    ]
    assert settings["resource gpt-4"].limits == (
        Limit.per_minute("rpm", 500),
        Limit.per_minute("tpm", 50_000),
    )
    assert LimitsManifest.from_dict(manifest.to_dict()) == manifest


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("{rpm: {capacity: 5}}", Limit.custom("rpm", 5, 5, 60)),
        ("{rpm: {capacity: 5, burst: 9}}", Limit.custom("rpm", 9, 5, 60)),
        ("{rpm: {capacity: 5, refill_amount: 2}}", Limit.custom("rpm", 5, 2, 60)),
        ("{rpm: {capacity: 5, refill_period: 90}}", Limit.custom("rpm", 5, 5, 90)),
        ("{rpm: {capacity: 5, refill_period: 2h}}", Limit.custom("rpm", 5, 5, 7200)),
        ("{rpm: {capacity: 1_000}}", Limit.custom("rpm", 1000, 1000, 60)),
        ("{rpm: 1000/min:1500}", Limit.custom("rpm", 1500, 1000, 60)),
        ("{rpm: 7}", Limit.custom("rpm", 7, 7, 60)),
        ("{rpm: 1_000}", Limit.custom("rpm", 1000, 1000, 60)),
        ("{rpm: 10:20}", Limit.custom("rpm", 20, 10, 60)),  # not a number to the base of 60
        ("{rpm: '5/day'}", Limit.custom("rpm", 5, 5, 86_400)),
        ("{p: {concurrent: 20}}", Limit.concurrent("p", 20)),
        ("{p: {concurrent: 20, lease_ttl: 90}}", Limit.concurrent("p", 20, 90)),
        ("{p: {concurrent: '20', lease_ttl: 2min}}", Limit.concurrent("p", 20, 120)),
        ("{p: 20/concurrent:90s}", Limit.concurrent("p", 20, 90)),
    ],
)
def test_a_limit_can_be_short(text, limit):
    assert limits_of(text) == [limit]


@pytest.mark.parametrize(
    "limit",
    [
        Limit.custom("rpm", 9, 5, 90),
        Limit.custom("rpm", 5, 9, 60),
        Limit.parse("rpm:5"),
        Limit.concurrent("rpm", 5),
        Limit.concurrent("rpm", 5, lease_ttl=90),
    ],
)
def test_a_declaration_of_a_limit_means_that_limit(limit):
    assert LimitDecl.of(limit).to_limit("rpm") == limit
    assert limits_of(f"{{rpm: {LimitDecl.of(limit).to_dict()}}}") == [limit]


def test_ids_are_taken_as_they_are_written():
    ids = ["0123", "2024-01-01", "true", "1_000", "null", "12"]
    text = "".join(f"  {each}: {{parent: 007, cascade: yes}}\n" for each in ids)
    entities = LimitsManifest.from_yaml(f"entities:\n{text}").entities
    assert list(entities) == ids
    assert {(each.parent, each.cascade) for each in entities.values()} == {("007", True)}


def test_every_mistake_is_reported_with_its_place():
    text = """\
namespace: "my app"
sytem: {}
system:
  on_unavailable: maybe
  limits:
    rpm: {capactiy: 5}
    rpm: 3
resources:
  gpt-4:
    limits: {rpm: 0, wcu: 5, tpm: 5/fortnight}
entities:
  user:
    parent: user
    cascade: true
  lonely:
    cascade: true
  a#b: {limits: {rpm: {capacity: many, burst: -1}}}
  empty: {limits: {}}
"""
    assert problems_of(text) == [
        (
            "limits.yaml:1:1: namespace: may contain letters, digits and _ - ., starting with a "
            "letter or digit (got 'my app')"
        ),
        "limits.yaml:2:1: sytem: is not known here; did you mean 'system'?",
        "limits.yaml:4:3: system.on_unavailable: must be 'allow' or 'block' (got 'maybe')",
        "limits.yaml:6:11: system.limits.rpm.capactiy: is not known here; did you mean 'capacity'?",
        "limits.yaml:7:5: system.limits.rpm: comes twice; keep one",
        "limits.yaml:10:14: resources.gpt-4.limits.rpm: must be greater than zero (got 'rpm:0')",
        (
            "limits.yaml:10:22: resources.gpt-4.limits.wcu: is reserved; choose another name "
            "(got 'wcu:5')"
        ),
        (
            "limits.yaml:10:30: resources.gpt-4.limits.tpm: must be sec, min, hour, day or week, "
            "or a number of them such as 90s or 2h (got 'tpm:5/fortnight')"
        ),
        "limits.yaml:13:5: entities.user.parent: makes the entity its own ancestor",
        "limits.yaml:16:5: entities.lonely.cascade: needs a parent to cascade to",
        "limits.yaml:17:3: entities.a#b: must not contain '#', the key delimiter (got 'a#b')",
        (
            "limits.yaml:17:24: entities.a#b.limits.rpm.capacity: must be a whole number above "
            "zero, not 'many'"
        ),
        (
            "limits.yaml:17:40: entities.a#b.limits.rpm.burst: must be a whole number above zero, "
            "not '-1'"
        ),
        (
            "limits.yaml:18:3: entities.empty: declares nothing; add limits or a parent, or leave "
            "the entry empty"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2]", "limits.yaml:1:1: must be a mapping, not a list"),
        ("just text", "limits.yaml:1:1: must be a mapping, not str 'just text'"),
        ("system: [", "is not YAML: did not find expected node content"),
        ("a: 1\n---\nb: 2", "limits.yaml:2:1: is not YAML: but found another document"),
        ("resources: []", "limits.yaml:1:1: resources: must be a mapping, not a list"),
        ("resources: {api: }", "limits.yaml:1:13: resources.api: must be a mapping, not empty"),
        (
            "resources: {api: {limits: {}}}",
            "limits.yaml:1:13: resources.api: has no limits; add a limit or a mode",
        ),
        ("system: !!python/object:os.system {}", "limits.yaml:1:9: system: has the tag"),
        ("system: !secret x", "limits.yaml:1:9: system: has the tag !secret; leave it out"),
        ("? [a]\n: 1", "limits.yaml:1:3: must have plain text as keys"),
        ("entities: {1: {parent: true}}", "entities.1.parent: must be a string (got True)"),
        ("\x00", "limits.yaml: is not YAML"),
        (
            "resources: {a: {limits: {t: {quota: 5, cron: '0 0 * * *'}}}}",
            'resources.a.limits.t.cron: is not read: a window is per="month", on=1',
        ),
    ],
)
def test_what_is_no_manifest_is_refused(text, reason):
    assert any(reason in problem for problem in problems_of(text)), problems_of(text)


def test_aliases_and_merge_keys_work():
    manifest = LimitsManifest.from_yaml(
        "resources:\n  a: &same {limits: {rpm: 5}}\n  b: *same\n"
        "entities:\n  one: &one {parent: team, cascade: true}\n  two:\n    <<: *one\n"
        "    cascade: false\n"
    )
    assert manifest.resources["a"] == manifest.resources["b"]
    assert manifest.entities["two"].parent == "team"
    assert manifest.entities["two"].cascade is False


def test_a_document_that_explodes_through_aliases_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "its aliases repeat too many values" in problems_of("\n".join(lines))[0]


def test_a_long_chain_of_parents_is_read_in_time():
    entities = {f"e{n}": {"parent": f"e{n + 1}", "cascade": True} for n in range(20_000)}
    assert len(LimitsManifest.from_dict({"entities": entities}).entities) == 20_000


def test_plain_data_may_have_numbers_and_booleans_as_text():
    manifest = LimitsManifest.from_dict(
        {
            "resources": {"api": {"limits": {"rpm": {"capacity": "5", "refill_period": "90"}}}},
            "entities": {"user": {"parent": 7, "cascade": "true"}},
        }
    )
    assert manifest.resources["api"].limits["rpm"] == LimitDecl(5, None, None, 90)
    assert (manifest.entities["user"].parent, manifest.entities["user"].cascade) == ("7", True)
    with pytest.raises(ManifestError, match=r"manifest: resources\.api: must be a mapping"):
        LimitsManifest.from_dict({"resources": {"api": 5}})


MONTHLY = {"quota": 5, "per": "month"}


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        (
            {"quota": "5", "per": "month", "on": "31", "every": "2", "thresholds": ["50", "80"]},
            Limit.quota("t", 5, per="month", on=31, every=2, thresholds=(50, 80)),
        ),
        (
            {"quota": "5", "after_first_use": "18000", "hold_ttl": "2"},
            Limit.quota("t", 5, after_first_use="5h", hold_ttl=2),
        ),
        ({**MONTHLY, "soft": "True"}, Limit.quota("t", 5, per="month", soft=True)),
        ({**MONTHLY, "soft": "false"}, Limit.quota("t", 5, per="month")),
        ({**MONTHLY, "hold_ttl": "never"}, Limit.quota("t", 5, per="month", hold_ttl=None)),
        ({**MONTHLY, "hold_ttl": None}, Limit.quota("t", 5, per="month", hold_ttl=None)),
        (
            {"budget": "12.5", "currency": "EUR", "per": "week", "on": "sun", "at": "06:30"},
            Limit.budget("t", "12.5", currency="EUR", per="week", on="sun", at="06:30"),
        ),
        ({"budget": 12.5, "per": "day"}, Limit.budget("t", "12.5", per="day")),
        ({"capacity": "5", "soft": "true"}, Limit.per_minute("t", 5, soft=True)),
        ({"concurrent": "5", "soft": "true"}, Limit.concurrent("t", 5, soft=True)),
        ("5/concurrent:9s,soft", Limit.concurrent("t", 5, lease_ttl=9, soft=True)),
    ],
)
def test_quotas_are_read_as_cloudformation_sends_them(fields, limit):
    manifest = LimitsManifest.from_dict({"resources": {"api": {"limits": {"t": fields}}}})
    assert manifest.resources["api"].limits["t"].to_limit("t") == limit
    assert LimitsManifest.from_dict(manifest.to_dict()) == manifest


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({**MONTHLY, "soft": "yes"}, r"limits\.t\.soft: must be true or false, not 'yes'"),
        ({"capacity": 5, "soft": 1}, r"limits\.t\.soft: must be true or false, not 1"),
        ({**MONTHLY, "hold_ttl": "1"}, r"must be None or whole seconds from 2"),
        ({**MONTHLY, "hold_ttl": "soon"}, r"limits\.t: must be sec, min"),
        ({**MONTHLY, "thresholds": ["half"]}, r"must be whole percentages"),
        ({"quota": 5.0, "per": "month"}, r"must be a whole number"),
        (
            {"budget": 123456789.123456789, "per": "day"},
            r"limits\.t\.budget: has more digits than YAML keeps; write it in quotes",
        ),
    ],
)
def test_mistakes_in_quotas_are_reported_with_their_place(fields, reason):
    with pytest.raises(ManifestError, match=reason):
        LimitsManifest.from_dict({"resources": {"api": {"limits": {"t": fields}}}})


def test_several_files_are_one_manifest():
    manifest = read_files(
        [
            (
                "a.yaml",
                (
                    "system: {on_unavailable: block}\nentities: {u: {resources: {x: {limits: "
                    "{rpm: 1}}}}}"
                ),
            ),
            ("b.yaml", "namespace: prod\nsystem: {limits: {rpm: 5}}\nentities: {u: {parent: t}}"),
        ]
    )
    assert manifest.namespace == "prod"
    assert [str(target) for target in wanted_settings(manifest)] == [
        "system",
        "system on_unavailable",
        "entity t",
        "entity u",
        "entity u on x",
    ]


def test_mistakes_of_all_files_and_targets_in_two_files_are_reported():
    one = "namespace: a\nsystem: {limits: {rpm: 1}}\nentities:\n  u: {parent: t, limits: {rpm: 1}}"
    other = (
        "namespace: b\nsystem: {limits: {rpm: 2}}\nentities:\n  u: {parent: t, limits: {rpm: 1}}"
    )
    with pytest.raises(ManifestError) as caught:
        read_files([("a.yaml", one), ("b.yaml", other), ("c.yaml", "system: 5"), ("d.yaml", "[")])
    assert [str(problem).partition(": ")[2] for problem in caught.value.problems][:4] == [
        "namespace: differs from 'a' in another file; apply the files separately",
        "system.limits: is declared by another file as well; keep one",
        "entities.u.resources._default_: is declared by another file as well; keep one",
        "entities.u.parent: is declared by another file as well; keep one",
    ]
    assert {problem.source for problem in caught.value.problems} == {"b.yaml", "c.yaml", "d.yaml"}


def test_the_error_is_a_validation_error_and_pickles():
    with pytest.raises(ValidationError) as caught:
        LimitsManifest.from_yaml("sytem: {}")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.problems) == (str(caught.value), caught.value.problems)


def test_plain_data_is_read_without_yaml():
    code = (
        "import sys; from zae_limiter_ops.manifest.declarations import LimitsManifest;"
        "LimitsManifest.from_dict({'system': {'limits': {'rpm': {'capacity': '5'}}}});"
        "assert not {'yaml', 'click', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("slots", [8, 9])
def test_limits_on_calls_in_flight_count_as_four(slots):
    """As for every other way to set limits: the writes to a bucket must fit into a request."""
    limits = {f"slots-{number}": {"concurrent": 5} for number in range(slots)}
    document = {"system": {"limits": limits}}
    if slots == 8:
        assert len(LimitsManifest.from_dict(document).system.limits) == 8
        return
    with pytest.raises(ManifestError, match="one on calls in flight counts as 4"):
        LimitsManifest.from_dict(document)
