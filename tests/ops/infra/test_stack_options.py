"""One option, four forms: field, parameter of the template, flag, method of the builder."""

from dataclasses import fields

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import RepositoryBuilder, SyncRepositoryBuilder, ValidationError
from zae_limiter.models.stack import StackOptions, described_options
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.infra import names, parameters
from zae_limiter_ops.infra.protection import less_protection

FIELDS = {field.name: field for field in fields(StackOptions)}
# The value of these parameters is computed from several options, or from a part of one.
COMPUTED = {
    "LambdaDurationThresholdMs": "lambda_duration_threshold_pct",
    "RoleNamePrefix": "role_name_format",
    "RoleNameSuffix": "role_name_format",
    "PolicyNamePrefix": "policy_name_format",
    "PolicyNameSuffix": "policy_name_format",
}
EXAMPLES = {
    "snapshot_windows": "hourly",
    "usage_retention_days": 30,
    "audit_retention_days": 30,
    "enable_aggregator": False,
    "pitr_recovery_days": 7,
    "log_retention_days": 14,
    "lambda_timeout": 30,
    "lambda_memory": 512,
    "reserved_concurrency": 2,
    "lambda_duration_threshold_pct": 50,
    "enable_alarms": False,
    "alarm_sns_topic": "arn:aws:sns:us-east-1:123456789012:alarms",
    "permission_boundary": "arn:aws:iam::aws:policy/PowerUserAccess",
    "role_name_format": "pb-{}-PowerUser",
    "policy_name_format": "pb-{}-PowerUser",
    "enable_audit_archival": False,
    "audit_archive_glacier_days": 30,
    "enable_tracing": True,
    "create_iam": False,
    "create_iam_roles": True,
    "aggregator_role_arn": "arn:aws:iam::123456789012:role/lambda",
    "enable_deletion_protection": True,
    "tags": {"team": "search"},
}


def deploy_defaults():
    """Return the options of ``deploy`` without any flag."""
    command = app.get_command(click.Context(app), "deploy")
    return command.make_context("deploy", []).params


def test_every_option_has_an_example_here():
    assert EXAMPLES.keys() == FIELDS.keys()


def test_every_option_is_a_parameter_and_every_parameter_an_option():
    of_fields = {name.title().replace("_", ""): name for name in FIELDS if name != "tags"}
    for name, field in COMPUTED.items():
        of_fields.pop(field.title().replace("_", ""), None)
        of_fields[name] = field
    assert {each.name for each in parameters.PARAMETERS} == set(of_fields)


def test_the_defaults_of_the_template_are_those_of_the_options():
    assert parameters.values(StackOptions()) == {
        each.name: each.default for each in parameters.PARAMETERS
    }


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "tags"])
def test_every_option_changes_a_parameter(name):
    options = StackOptions(**{name: EXAMPLES[name]})
    assert parameters.values(options) != parameters.values(StackOptions())


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_is_a_flag_of_deploy_with_its_default(name):
    assert deploy_defaults()[name] == getattr(StackOptions(), name)


@given(
    st.fixed_dictionaries({}, optional={name: st.just(EXAMPLES[name]) for name in EXAMPLES}),
    st.integers(1, 900),
    st.integers(1, 100),
)
def test_a_stack_tells_the_options_that_it_was_deployed_with(chosen, timeout_s, percent):
    if chosen.get("create_iam") is False:
        chosen.pop("create_iam_roles", None)
    chosen |= {"lambda_timeout": timeout_s, "lambda_duration_threshold_pct": percent}
    options = StackOptions(**chosen)
    assert parameters.options_of(parameters.values(options), options.tags) == options


LESS = {
    "enable_deletion_protection": (True, False),
    "pitr_recovery_days": (35, None),
    "usage_retention_days": (90, 30),
    "audit_retention_days": (90, 30),
    "log_retention_days": (30, 14),
    "permission_boundary": (EXAMPLES["permission_boundary"], None),
    "enable_alarms": (True, False),
    "alarm_sns_topic": (EXAMPLES["alarm_sns_topic"], None),
    "enable_audit_archival": (True, False),
}


@pytest.mark.parametrize("name", LESS)
def test_a_change_that_protects_less_is_named_and_its_reverse_is_not(name):
    more, less = (StackOptions(**{name: value}) for value in LESS[name])
    assert len(less_protection(more, less)) == 1
    assert less_protection(less, more) == []
    assert less_protection(more, more) == []


def test_expired_events_are_not_archived_without_the_function_that_does_it():
    for change in ({"enable_aggregator": False}, {"create_iam": False}):
        (phrase,) = less_protection(StackOptions(), StackOptions(**change))
        assert phrase == "expired audit events are no longer archived"
    assert less_protection(StackOptions(enable_aggregator=False), StackOptions()) == []


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "tags"])
def test_every_option_can_be_set_back_to_its_default_by_a_flag(name):
    """A deployment keeps every option that it does not name."""
    default = getattr(StackOptions(), name)
    option = next(each.option for each in described_options() if each.name == name)
    if default is None:
        assert option.unset_flag == "--no-pitr" or option.unset_flag == f"--no-{option.flag[2:]}"
    elif isinstance(default, bool):
        assert "/--no-" in option.flag
    else:
        option.check(name, default)


@pytest.mark.each_value_once
@pytest.mark.parametrize("builder", [RepositoryBuilder, SyncRepositoryBuilder])
@pytest.mark.parametrize("name", FIELDS)
def test_every_option_is_a_method_of_the_builder(builder, name):
    built = getattr(builder(), name)(EXAMPLES[name])
    assert isinstance(built, builder)
    assert getattr(built.collected_options(), name) == EXAMPLES[name]


def test_single_options_change_those_that_were_set_together():
    builder = (
        SyncRepositoryBuilder().lambda_timeout(30).stack_options(StackOptions(lambda_memory=512))
    )
    assert builder.collected_options() == StackOptions(lambda_memory=512, lambda_timeout=30)
    assert SyncRepositoryBuilder().collected_options() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lambda_memory", 127),
        ("lambda_memory", 3009),
        ("lambda_timeout", 0),
        ("lambda_timeout", 901),
        ("reserved_concurrency", 1001),
        ("pitr_recovery_days", 36),
        ("log_retention_days", 31),
        ("snapshot_windows", "weekly"),
        ("role_name_format", "no gap"),
        ("policy_name_format", "{}" + "x" * 119),
        ("alarm_sns_topic", "alarms"),
        ("tags", {"aws:x": "y"}),
    ],
)
def test_a_value_out_of_range_is_refused_at_once(name, value):
    with pytest.raises(ValidationError, match=name):
        getattr(SyncRepositoryBuilder(), name)(value)


def test_a_format_that_makes_names_too_long_is_refused_before_anything_is_created():
    options = StackOptions(role_name_format="x" * 30 + "{}")
    names.check_names("a" * 20, options)
    with pytest.raises(ValidationError, match="role_name_format"):
        names.check_names("a" * 45, options)
