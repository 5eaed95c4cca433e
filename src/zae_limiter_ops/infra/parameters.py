"""The parameters of the template, one for each stack option, and the conditions on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.models.stack import (
    NAME_FORMAT_GAP,
    DescribedOption,
    StackOption,
    StackOptions,
    described_options,
)
from zae_limiter_ops.infra import names


class Parameter(NamedTuple):
    """A parameter of the template; CloudFormation checks values against ``rules``."""

    name: str
    default: str
    description: str
    rules: dict[str, Any]


YES, NO = "true", "false"
# CloudFormation can neither calculate nor split text, so these options become other parameters.
OTHER_FORM = ("lambda_duration_threshold_pct", "role_name_format", "policy_name_format")


def _parameter_name(field: str) -> str:
    return field.title().replace("_", "")


def _text(value: str | int | bool | None, *, is_number: bool) -> str:
    """Return a value as the text of a parameter; an unset option becomes 0 or empty text."""
    if isinstance(value, bool):
        return YES if value else NO
    if value is None:
        return "0" if is_number else ""
    return str(value)


def _is_number(option: StackOption) -> bool:
    return option.most is not None or bool(option.choices)


def _rules(default: object, option: StackOption) -> dict[str, Any]:
    if isinstance(default, bool):
        return {"AllowedValues": [YES, NO]}
    if option.choices:
        return {"Type": "Number", "AllowedValues": [str(each) for each in option.choices]}
    if option.most is not None:
        least = 0 if default is None else option.least  # 0 stands for an unset option
        return {"Type": "Number", "MinValue": least, "MaxValue": option.most}
    return {}


DIRECT = tuple(each for each in described_options() if each.name not in OTHER_FORM)
PARAMETERS = (
    *(
        Parameter(
            _parameter_name(each.name),
            _text(each.default, is_number=_is_number(each.option)),
            each.option.help,
            _rules(each.default, each.option),
        )
        for each in DIRECT
    ),
    Parameter(
        "LambdaDurationThresholdMs",
        "48000",
        "Alarm if the aggregator takes longer, in milliseconds.",
        {"Type": "Number", "MinValue": 1, "MaxValue": 900000},
    ),
    Parameter("RoleNamePrefix", "", "Text before the name of each role.", {}),
    Parameter("RoleNameSuffix", "", "Text after the name of each role.", {}),
    Parameter("PolicyNamePrefix", "", "Text before the name of each policy.", {}),
    Parameter("PolicyNameSuffix", "", "Text after the name of each policy.", {}),
)


def section() -> dict[str, Any]:
    """Return the Parameters section of the template."""
    return {
        each.name: {
            "Type": "String",
            "Default": each.default,
            "Description": each.description,
            **each.rules,
        }
        for each in PARAMETERS
    }


def conditions() -> dict[str, Any]:
    """Return the Conditions section of the template.

    The functions are written in the long form, which local control planes accept as well.
    """

    def on(parameter: str) -> dict[str, Any]:
        return {"Fn::Equals": [{"Ref": parameter}, YES]}

    def given(parameter: str, empty: str = "") -> dict[str, Any]:
        return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, empty]}]}

    def all_of(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"Fn::And": list(parts)}

    def condition(name: str) -> dict[str, Any]:
        return {"Condition": name}

    return {
        "HasIam": on("CreateIam"),
        "HasOwnRole": given("AggregatorRoleArn"),
        "CanRun": {"Fn::Or": [condition("HasIam"), condition("HasOwnRole")]},
        "HasAggregator": all_of(on("EnableAggregator"), condition("CanRun")),
        "MakesRole": all_of(on("CreateIam"), {"Fn::Equals": [{"Ref": "AggregatorRoleArn"}, ""]}),
        "MakesAggregatorRole": all_of(condition("MakesRole"), condition("HasAggregator")),
        "HasRoles": all_of(on("CreateIam"), on("CreateIamRoles")),
        "HasBoundary": given("PermissionBoundary"),
        "HasArchive": all_of(on("EnableAuditArchival"), condition("HasAggregator")),
        # Lambda keeps failed batches in S3 in the standard regions.
        "KeepsBatches": all_of(
            condition("HasArchive"), {"Fn::Equals": [{"Ref": "AWS::Partition"}, "aws"]}
        ),
        "HasQueue": all_of(condition("HasAggregator"), {"Fn::Not": [condition("KeepsBatches")]}),
        "HasQueueAlarm": all_of(on("EnableAlarms"), condition("HasQueue")),
        "HasTracing": on("EnableTracing"),
        "HasPitr": given("PitrRecoveryDays", "0"),
        "HasConcurrency": given("ReservedConcurrency", "0"),
        "HasAlarms": on("EnableAlarms"),
        "HasAggregatorAlarms": all_of(on("EnableAlarms"), condition("HasAggregator")),
        "HasTopic": given("AlarmSnsTopic"),
        "IsProtected": on("EnableDeletionProtection"),
    }


def only_if(condition: str, value: Any) -> dict[str, Any]:
    """Return a property that the template omits unless the condition holds."""
    return {"Fn::If": [condition, value, {"Ref": "AWS::NoValue"}]}


def options_of(values: Mapping[str, str], tags: Mapping[str, str]) -> StackOptions:
    """Return the options of a stack with these parameter values; the inverse of ``values``."""
    found: dict[str, Any] = {
        each.name: _parsed(values[_parameter_name(each.name)], each)
        for each in DIRECT
        if _parameter_name(each.name) in values
    }
    timeout_s = found.get("lambda_timeout", StackOptions().lambda_timeout)
    if "LambdaDurationThresholdMs" in values:
        percent = round(int(values["LambdaDurationThresholdMs"]) / (timeout_s * 10))
        found["lambda_duration_threshold_pct"] = percent
    for kind in ("Role", "Policy"):
        before, after = values.get(f"{kind}NamePrefix", ""), values.get(f"{kind}NameSuffix", "")
        if before or after:
            found[f"{kind.lower()}_name_format"] = f"{before}{NAME_FORMAT_GAP}{after}"
    return StackOptions(**found, tags=dict(tags))


def _parsed(text: str, described: DescribedOption) -> str | int | bool | None:
    """Return the value of an option from the text of its parameter."""
    if isinstance(described.default, bool):
        return text == YES
    is_number = _is_number(described.option)
    if described.default is None and text == _text(None, is_number=is_number):
        return None
    return int(text) if is_number else text


def values(options: StackOptions) -> dict[str, str]:
    """Return the text of every parameter for these options."""
    role_before, role_after = names.split_format(options.role_name_format)
    policy_before, policy_after = names.split_format(options.policy_name_format)
    threshold_ms = options.lambda_timeout * 10 * options.lambda_duration_threshold_pct
    direct = {
        _parameter_name(each.name): _text(
            getattr(options, each.name), is_number=_is_number(each.option)
        )
        for each in DIRECT
    }
    return {
        **direct,
        "LambdaDurationThresholdMs": str(threshold_ms),
        "RoleNamePrefix": role_before,
        "RoleNameSuffix": role_after,
        "PolicyNamePrefix": policy_before,
        "PolicyNameSuffix": policy_after,
    }
