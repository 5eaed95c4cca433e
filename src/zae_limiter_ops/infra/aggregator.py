"""The aggregator in the template: function, event source, queue, log group, archive and alarms."""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.dynamodb import table
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.parameters import only_if
from zae_limiter_ops.infra.private_buckets import private_bucket
from zae_limiter_ops.transport.partitions import URL_SUFFIX

Resource = dict[str, Any]

RUNTIME = "python3.12"  # tests run the packages on 3.11 to 3.13
ARCHITECTURE = "arm64"  # a fifth cheaper than x86_64
HANDLER = "index.handler"
# A deployment uploads the code of a function by UpdateFunctionCode. If this text ever changed,
# CloudFormation would replace the code of every deployed function with the placeholder.
PLACEHOLDER = (
    'def handler(event, context):\n    raise RuntimeError("no code yet: run zae-limiter upgrade")\n'
)
BATCH_SIZE = 1000  # records per invocation; a record is a turned hour or an expired event
BATCH_WINDOW_S = 5
FOREVER = -1
# Lambda retries a failed batch until its records have this age. The stream keeps them for an hour
# longer, so that Lambda can still read the batch and keep it.
MAX_RECORD_AGE_S = 23 * 3600
MESSAGE_RETENTION_S = 14 * 24 * 3600  # SQS's maximum
ITERATOR_AGE_MS = 3_600_000  # one hour; DynamoDB keeps stream records for a day
TURNED_HOURS = {"dynamodb": {"NewImage": {"op": {"S": [{"prefix": "~"}]}}}}
REMOVED_EVENTS = {"dynamodb": {"OldImage": {"SK": {"S": [{"prefix": "#AUDIT#"}]}}}}

# Logical ids of the resources that hold failed batches.
ARCHIVE, QUEUE = "AuditArchive", "AggregatorDeadLetterQueue"

_STACK = "${AWS::StackName}"


def resources() -> dict[str, Resource]:
    return {
        "AggregatorLogGroup": log_group(names.aggregator_function(_STACK), "HasAggregator"),
        QUEUE: {
            "Type": "AWS::SQS::Queue",
            "Condition": "HasQueue",
            "UpdateReplacePolicy": "Delete",
            "DeletionPolicy": "Delete",
            "Properties": {
                # Without a name: SQS refuses the name of a deleted queue for a minute.
                "MessageRetentionPeriod": MESSAGE_RETENTION_S,
                "SqsManagedSseEnabled": True,
            },
        },
        "Aggregator": _function(),
        "AggregatorEventSource": _event_source(),
        ARCHIVE: _archive(),
        **_alarms(),
    }


def log_group(function: str, condition: str) -> Resource:
    """Return the log group of a function; the log group is deleted with the stack."""
    return {
        "Type": "AWS::Logs::LogGroup",
        "Condition": condition,
        "UpdateReplacePolicy": "Delete",
        "DeletionPolicy": "Delete",
        "Properties": {
            "LogGroupName": {"Fn::Sub": names.log_group(function)},
            "RetentionInDays": {"Ref": "LogRetentionDays"},
        },
    }


def function(
    name: str,
    description: str,
    *,
    condition: str,
    prefix: str,
    properties: Resource,
    variables: Resource | None = None,
) -> Resource:
    """Return a function that works on the table.

    ``prefix`` begins the logical ids of the function's role and log group. ``variables`` are added
    to the environment that every function has.
    """
    own_role = {"Fn::GetAtt": [f"{prefix}Role", "Arn"]}
    environment = {
        "TABLE_NAME": {"Ref": "Table"},
        URL_SUFFIX: {"Ref": "AWS::URLSuffix"},
        **(variables or {}),
    }
    return {
        "Type": "AWS::Lambda::Function",
        "Condition": condition,
        "DependsOn": f"{prefix}LogGroup",
        "Properties": {
            "FunctionName": {"Fn::Sub": name},
            "Description": description,
            "Runtime": RUNTIME,
            "Architectures": [ARCHITECTURE],
            "Handler": HANDLER,
            "Code": {"ZipFile": PLACEHOLDER},
            "Role": {"Fn::If": ["HasOwnRole", {"Ref": "AggregatorRoleArn"}, own_role]},
            "MemorySize": {"Ref": "LambdaMemory"},
            "TracingConfig": {"Mode": {"Fn::If": ["HasTracing", "Active", "PassThrough"]}},
            "Environment": {"Variables": environment},
            **properties,
        },
    }


def _function() -> Resource:
    archive = {"Fn::If": ["HasArchive", {"Ref": ARCHIVE}, ""]}
    concurrency = only_if("HasConcurrency", {"Ref": "ReservedConcurrency"})
    return function(
        names.aggregator_function(_STACK),
        "Stores finished hours of usage and archives audit events",
        condition="HasAggregator",
        prefix="Aggregator",
        properties={
            "Timeout": {"Ref": "LambdaTimeout"},
            "ReservedConcurrentExecutions": concurrency,
        },
        variables={"ARCHIVE_BUCKET_NAME": archive},
    )


def _event_source() -> Resource:
    hours, removed = _pattern(TURNED_HOURS), _pattern(REMOVED_EVENTS)
    archive = {"Fn::GetAtt": [ARCHIVE, "Arn"]}
    queue = {"Fn::GetAtt": [QUEUE, "Arn"]}
    return {
        "Type": "AWS::Lambda::EventSourceMapping",
        "Condition": "HasAggregator",
        "Properties": {
            "EventSourceArn": {"Fn::GetAtt": ["Table", "StreamArn"]},
            "FunctionName": {"Ref": "Aggregator"},
            "StartingPosition": "TRIM_HORIZON",
            "BatchSize": BATCH_SIZE,
            "MaximumBatchingWindowInSeconds": BATCH_WINDOW_S,
            "MaximumRetryAttempts": FOREVER,
            "MaximumRecordAgeInSeconds": MAX_RECORD_AGE_S,
            "BisectBatchOnFunctionError": True,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "FilterCriteria": {"Filters": {"Fn::If": ["HasArchive", [hours, removed], [hours]]}},
            # An object in S3 holds the whole batch, a message in SQS only its place in the stream.
            "DestinationConfig": {
                "OnFailure": {"Destination": {"Fn::If": ["KeepsBatches", archive, queue]}}
            },
        },
    }


def _pattern(pattern: dict[str, Any]) -> dict[str, str]:
    return {"Pattern": json.dumps(pattern, separators=(",", ":"))}


def _archive() -> Resource:
    return {
        "Type": "AWS::S3::Bucket",
        "Condition": "HasArchive",
        # Archived events outlive the stack: their owner decides when to delete them. After a
        # creation that is rolled back, the bucket is empty and can go.
        "DeletionPolicy": "RetainExceptOnCreate",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            **private_bucket(),
            "LifecycleConfiguration": {
                "Rules": [
                    {
                        "Id": "ToGlacier",
                        "Status": "Enabled",
                        "Prefix": "audit/",
                        "Transitions": [
                            {
                                "StorageClass": "GLACIER",
                                "TransitionInDays": {"Ref": "AuditArchiveGlacierDays"},
                            }
                        ],
                    }
                ]
            },
        },
    }


def _alarms() -> dict[str, Resource]:
    function = {"FunctionName": {"Ref": "Aggregator"}}
    queue = {"QueueName": {"Fn::GetAtt": [QUEUE, "QueueName"]}}
    duration = {"Ref": "LambdaDurationThresholdMs"}
    return {
        "AggregatorErrors": _alarm(
            "aggregator-errors", "The aggregator fails", "AWS/Lambda/Errors", function, 0
        ),
        "AggregatorDuration": _alarm(
            "aggregator-duration",
            "The aggregator nears its timeout",
            "AWS/Lambda/Duration",
            function,
            duration,
            statistic="Maximum",
        ),
        "AggregatorIteratorAge": _alarm(
            "aggregator-iterator-age",
            "The aggregator is an hour behind the stream",
            "AWS/Lambda/IteratorAge",
            function,
            ITERATOR_AGE_MS,
            statistic="Maximum",
        ),
        "AggregatorDeadLetters": _alarm(
            "aggregator-dlq",
            "The aggregator gave records up; they are in the dead letter queue",
            "AWS/SQS/ApproximateNumberOfMessagesVisible",
            queue,
            0,
            statistic="Maximum",
            condition="HasQueueAlarm",
        ),
        "AggregatorLostBatches": _alarm(
            "aggregator-lost-batches",
            "Lambda could keep a failed batch neither in the archive nor in the queue",
            "AWS/Lambda/DestinationDeliveryFailures",
            function,
            0,
        ),
        "TableThrottles": _throttles("table"),
        # The metric of the table does not contain its indexes.
        **{
            f"{index.name}Throttles": _throttles(
                index.name.lower(), GlobalSecondaryIndexName=index.name
            )
            for index in table.INDEXES
        },
    }


def _throttles(name: str, **dimensions: str) -> Resource:
    return _alarm(
        f"{name}-throttles",
        f"DynamoDB throttles writes to the {name}",
        "AWS/DynamoDB/WriteThrottleEvents",
        {"TableName": {"Ref": "Table"}, **dimensions},
        0,
        condition="HasAlarms",
    )


def _alarm(
    name: str,
    description: str,
    metric: str,
    dimensions: dict[str, Any],
    threshold: Any,
    *,
    statistic: str = "Sum",
    condition: str = "HasAggregatorAlarms",
) -> Resource:
    namespace, _, metric_name = metric.rpartition("/")
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Condition": condition,
        "Properties": {
            "AlarmName": {"Fn::Sub": f"{_STACK}-{name}"},
            "AlarmDescription": description,
            "Namespace": namespace,
            "MetricName": metric_name,
            "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            "Statistic": statistic,
            "Period": 300,
            "EvaluationPeriods": 1,
            "Threshold": threshold,
            "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": "notBreaching",
            "AlarmActions": only_if("HasTopic", [{"Ref": "AlarmSnsTopic"}]),
        },
    }
