"""The roles and managed policies of the template."""

from __future__ import annotations

from typing import Any

from zae_limiter_ops.infra import statements
from zae_limiter_ops.infra.parameters import only_if
from zae_limiter_ops.infra.statements import (
    AGGREGATOR_CALLS,
    PROVISIONER_CALLS,
    STREAM_CALLS,
    TABLE_ARN,
    actions,
    allow,
)

Resource = dict[str, Any]

LOGICAL_POLICIES = {
    "acq": ("AcquireOnlyPolicy", "Acquire on every namespace of the table"),
    "full": ("FullAccessPolicy", "Acquire and manage on every namespace of the table"),
    "read": ("ReadOnlyPolicy", "Read every namespace of the table"),
    "ns-acq": ("NamespaceAcquirePolicy", "Acquire in the namespace of the principal's tag"),
    "ns-full": ("NamespaceFullAccessPolicy", "Acquire and manage in the tagged namespace"),
    "ns-read": ("NamespaceReadOnlyPolicy", "Read the namespace of the principal's tag"),
}
LOGICAL_ROLES = {
    "app": ("AppRole", "acq"),
    "admin": ("AdminRole", "full"),
    "read": ("ReadOnlyRole", "read"),
}


def policies() -> dict[str, Resource]:
    """Return the six managed policies."""
    documents = statements.policy_documents()
    return {
        logical: {
            "Type": "AWS::IAM::ManagedPolicy",
            "Condition": "HasIam",
            "Properties": {
                "ManagedPolicyName": _name("Policy", component),
                "Description": description,
                "PolicyDocument": documents[component],
            },
        }
        for component, (logical, description) in LOGICAL_POLICIES.items()
    }


def roles() -> dict[str, Resource]:
    """Return the roles of the two functions, and the optional roles for applications."""
    found = {
        logical: _role(
            component,
            {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}},
            condition="HasRoles",
            ManagedPolicyArns=[{"Ref": LOGICAL_POLICIES[policy][0]}],
        )
        for component, (logical, policy) in LOGICAL_ROLES.items()
    }
    found["AggregatorRole"] = _role(
        "aggr",
        {"Service": "lambda.amazonaws.com"},
        condition="MakesAggregatorRole",
        Policies=[
            {
                "PolicyName": "aggregator",
                "PolicyDocument": statements.document(*_aggregator_statements()),
            },
            only_if(
                "HasArchive",
                {
                    "PolicyName": "archive",
                    "PolicyDocument": statements.document(*_archive_statements()),
                },
            ),
            only_if(
                "HasQueue",
                {
                    "PolicyName": "dead-letters",
                    "PolicyDocument": statements.document(_queue_statement()),
                },
            ),
            _tracing(),
        ],
    )
    found["ProvisionerRole"] = _role(
        "prov",
        {"Service": "lambda.amazonaws.com"},
        condition="MakesRole",
        Policies=[
            {
                "PolicyName": "provisioner",
                "PolicyDocument": statements.document(
                    allow("Limits", actions("dynamodb", PROVISIONER_CALLS), [TABLE_ARN]),
                    _logs_statement("ProvisionerLogGroup"),
                ),
            },
            _tracing(),
        ],
    )
    return found


def _aggregator_statements() -> list[statements.Statement]:
    return [
        allow("Usage", actions("dynamodb", AGGREGATOR_CALLS), [TABLE_ARN]),
        allow(
            "Stream", actions("dynamodb", STREAM_CALLS), [{"Fn::GetAtt": ["Table", "StreamArn"]}]
        ),
        allow("Streams", ["dynamodb:ListStreams"], ["*"]),  # IAM knows no resource for this action
        _logs_statement("AggregatorLogGroup"),
    ]


def _archive_statements() -> list[statements.Statement]:
    """Permit the function to store events, and Lambda to keep the batches that failed."""
    return [
        allow("Archive", ["s3:PutObject"], [{"Fn::Sub": "${AuditArchive.Arn}/*"}]),
        allow("KeptBatches", ["s3:ListBucket"], [{"Fn::GetAtt": ["AuditArchive", "Arn"]}]),
    ]


def _queue_statement() -> statements.Statement:
    queue = {"Fn::GetAtt": ["AggregatorDeadLetterQueue", "Arn"]}
    return allow("Failed", ["sqs:SendMessage"], [queue])


def _logs_statement(log_group: str) -> statements.Statement:
    streams = {"Fn::Sub": f"${{{log_group}.Arn}}:*"}
    return allow("Logs", ["logs:CreateLogStream", "logs:PutLogEvents"], [streams])


def _tracing() -> dict[str, Any]:
    statement = allow("Traces", ["xray:PutTelemetryRecords", "xray:PutTraceSegments"], ["*"])
    return only_if(
        "HasTracing", {"PolicyName": "tracing", "PolicyDocument": statements.document(statement)}
    )


def _role(
    component: str, principal: dict[str, Any], *, condition: str, **properties: Any
) -> Resource:
    return {
        "Type": "AWS::IAM::Role",
        "Condition": condition,
        "Properties": {
            "RoleName": _name("Role", component),
            "AssumeRolePolicyDocument": statements.document(
                {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
            ),
            "PermissionsBoundary": only_if("HasBoundary", {"Ref": "PermissionBoundary"}),
            **properties,
        },
    }


def _name(kind: str, component: str) -> dict[str, str]:
    before, after = f"${{{kind}NamePrefix}}", f"${{{kind}NameSuffix}}"
    return {"Fn::Sub": f"{before}${{AWS::StackName}}-{component}{after}"}
