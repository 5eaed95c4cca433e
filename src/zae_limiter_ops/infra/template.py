"""The CloudFormation template; the library's definition of the table is part of it."""

from __future__ import annotations

from typing import Any

from zae_limiter._version import __version__
from zae_limiter.dynamodb import table
from zae_limiter.items import version_record
from zae_limiter_ops.infra import access, aggregator, parameters, provisioner

DESCRIPTION = "zae-limiter: rate limits in DynamoDB"
_STACK = "${AWS::StackName}"


def template() -> dict[str, Any]:
    """Return the template. The stack options are its parameters."""
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": DESCRIPTION,
        "Metadata": {
            "zae-limiter": {"version": __version__, "schema": version_record.SCHEMA_VERSION}
        },
        "Parameters": parameters.section(),
        "Conditions": parameters.conditions(),
        "Resources": {
            "Table": _table(),
            **aggregator.resources(),
            **provisioner.resources(),
            **access.roles(),
            **access.policies(),
        },
        "Outputs": _outputs(),
    }


def as_yaml(body: dict[str, Any] | None = None) -> str:
    """Return a template as YAML text; without ``body``, our own template."""
    import yaml  # this module is in the packages of the functions, which lack PyYAML

    class NoAliases(yaml.SafeDumper):
        """Writes repeated values out: CloudFormation accepts no YAML aliases."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    text: str = yaml.dump(body or template(), Dumper=NoAliases, sort_keys=False, width=100)
    return text


def _table() -> dict[str, Any]:
    request = table.create_request("-")
    stream = request.pop("StreamSpecification")
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            **request,
            "TableName": {"Ref": "AWS::StackName"},
            "StreamSpecification": {"StreamViewType": stream["StreamViewType"]},
            "TimeToLiveSpecification": table.ttl_request("-")["TimeToLiveSpecification"],
            "PointInTimeRecoverySpecification": {
                "Fn::If": [
                    "HasPitr",
                    {
                        "PointInTimeRecoveryEnabled": True,
                        "RecoveryPeriodInDays": {"Ref": "PitrRecoveryDays"},
                    },
                    {"PointInTimeRecoveryEnabled": False},
                ]
            },
            "DeletionProtectionEnabled": {"Fn::If": ["IsProtected", True, False]},
        },
    }


def _outputs() -> dict[str, Any]:
    outputs = {
        "TableName": _output("Name of the table", {"Ref": "Table"}),
        "TableArn": _output("ARN of the table", {"Fn::GetAtt": ["Table", "Arn"]}),
        "StreamArn": _output("ARN of the table's stream", {"Fn::GetAtt": ["Table", "StreamArn"]}),
        "SnapshotWindows": _output("Windows that reports offer", {"Ref": "SnapshotWindows"}),
        "UsageRetentionDays": _output("Days that usage is kept", {"Ref": "UsageRetentionDays"}),
        "AuditRetentionDays": _output("Days of audit events", {"Ref": "AuditRetentionDays"}),
        "AggregatorArn": _output(
            "ARN of the aggregator", {"Fn::GetAtt": ["Aggregator", "Arn"]}, "HasAggregator"
        ),
        provisioner.ARN_OUTPUT: _output(
            "ARN of the provisioner", {"Fn::GetAtt": ["Provisioner", "Arn"]}, "CanRun"
        ),
        "ArchiveBucket": _output(
            "Bucket of archived audit events", {"Ref": "AuditArchive"}, "HasArchive"
        ),
        "AggregatorRoleArn": _output(
            "ARN of the aggregator's role",
            {"Fn::GetAtt": ["AggregatorRole", "Arn"]},
            "MakesAggregatorRole",
        ),
        "ProvisionerRoleArn": _output(
            "ARN of the provisioner's role",
            {"Fn::GetAtt": ["ProvisionerRole", "Arn"]},
            "MakesRole",
        ),
    }
    for logical, _ in access.LOGICAL_POLICIES.values():
        outputs[f"{logical}Arn"] = _output(f"ARN of {logical}", {"Ref": logical}, "HasIam")
    for logical, _ in access.LOGICAL_ROLES.values():
        arn = {"Fn::GetAtt": [logical, "Arn"]}
        outputs[f"{logical}Arn"] = _output(f"ARN of {logical}", arn, "HasRoles")
    return {
        name: {**output, "Export": {"Name": {"Fn::Sub": f"{_STACK}-{name}"}}}
        for name, output in outputs.items()
    }


def _output(description: str, value: Any, condition: str | None = None) -> dict[str, Any]:
    output = {"Description": description, "Value": value}
    return output if condition is None else {**output, "Condition": condition}
