"""The documented rights of the deployer are those that CloudFormation's resource types ask for."""

import json
import re
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import pytest

from zae_limiter_ops.infra.template import template

PAGE = Path(__file__).parents[3] / "docs/infra/deployment.md"
# Its data alone is needed; to import it takes longer than all of these tests.
SCHEMAS = Path(find_spec("cfnlint").origin).parent / "data/schemas"
ACTION = re.compile(r"`([a-z0-9]+:[A-Za-z*]+)`")
# Rights that a resource type asks for only because of properties that the template does not use.
NOT_USED = {
    "a key of the user's own": ("kms:*", "logs:*KmsKey"),
    "streams of Kinesis": ("kinesis:*", "dynamodb:*KinesisStreamingDestination"),
    "replicas": (
        "dynamodb:*TableReplica",
        "dynamodb:BatchWriteItem",
        "dynamodb:Scan",
        "iam:CreateServiceLinkedRole",
    ),
    "imports of a table": (
        "dynamodb:ImportTable",
        "s3:GetObject",
        "s3:GetObjectMetadata",
        "logs:*LogStream*",
        "logs:PutLogEvents",
    ),
    "contributor insights": ("dynamodb:UpdateContributorInsights",),
    "policies of resources": ("dynamodb:*ResourcePolicy", "logs:*ResourcePolicy"),
    "groups and users": ("iam:*GroupPolicy", "iam:*UserPolicy"),
    "a VPC or file system": ("ec2:*", "elasticfilesystem:*", "s3files:*"),
    "code from S3, layers, signing, versions, scaling": (
        "s3:GetObjectVersion",
        "lambda:GetLayerVersion",
        "lambda:*CodeSigningConfig",
        "lambda:*ScalingConfig",
        "lambda:PublishVersion",
        "lambda:PassCapacityProvider",
        "lambda:AssociateRuntimeAlias",
        "lambda:PutFunctionRecursionConfig",
        "lambda:PutRuntimeManagementConfig",
    ),
    "other features of log groups": (
        "firehose:*",
        "s3:REST.PUT.OBJECT",
        "logs:CreateLogDelivery",
        "logs:*DataProtectionPolicy",
        "logs:*IndexPolicy",
        "logs:PutBearerTokenAuthentication",
        "logs:PutLogGroupDeletionProtection",
    ),
    "other features of buckets": (
        "s3tables:*",
        "s3:*Metadata*",
        "s3:DeleteBucket?*",
        "s3:DeleteObject",
        "s3:GetIntelligentTieringConfiguration",
        "s3:Put*Acl",
        "s3:PutBucketAbac",
        "s3:PutBucketCORS",
        "s3:PutBucketLogging",
        "s3:PutBucketNotification",
        "s3:PutBucketObjectLockConfiguration",
        "s3:PutBucketOwnershipControls",
        "s3:PutBucketReplication",
        "s3:PutBucketVersioning",
        "s3:PutBucketWebsite",
        "s3:PutAccelerateConfiguration",
        "s3:PutAnalyticsConfiguration",
        "s3:PutIntelligentTieringConfiguration",
        "s3:PutInventoryConfiguration",
        "s3:PutMetricsConfiguration",
        "s3:PutObjectLockConfiguration",
        "s3:PutReplicationConfiguration",
    ),
}


def documented():
    """Return the actions in the table of the page."""
    section = PAGE.read_text(encoding="utf-8").partition("## Rights of the deployer")[2]
    return set(ACTION.findall(section.partition("\n## ")[0]))


def asked_for():
    """Return the rights that the resource types of the template ask for."""
    files = json.loads((SCHEMAS / "providers/us-east-1.json").read_text())
    asked = set()
    for kind in {resource["Type"] for resource in template()["Resources"].values()}:
        schema = json.loads((SCHEMAS / f"resources/{files[kind]}.json").read_text())
        for operation in ("create", "read", "update", "delete"):
            asked |= set(schema["handlers"][operation]["permissions"])
        asked |= set(schema.get("tagging", {}).get("permissions", ()))
    return asked


def is_among(action, patterns):
    return any(fnmatchcase(action, pattern) for pattern in patterns)


def test_every_right_that_cloudformation_needs_is_documented():
    unused = [pattern for patterns in NOT_USED.values() for pattern in patterns]
    missing = {each for each in asked_for() if not is_among(each, [*documented(), *unused])}
    assert missing == set()
    assert "iam:PassRole" in documented()


def test_no_other_right_is_documented():
    """Besides the rights of CloudFormation: calls that our own code makes."""
    asked = asked_for()
    others = {each for each in documented() if not any(fnmatchcase(one, each) for one in asked)}
    assert others == {
        *(each for each in others if each.startswith("cloudformation:")),
        "cloudwatch:GetMetricStatistics",
        "dynamodb:BatchGetItem",
        "dynamodb:ConditionCheckItem",
        "lambda:GetFunctionConfiguration",
        "lambda:ListEventSourceMappings",
        "logs:FilterLogEvents",
    }


def test_the_rights_of_a_role_for_both_functions_are_documented():
    page = PAGE.read_text(encoding="utf-8").partition("- `--no-iam` creates")[2]
    granted = set()
    for role in ("AggregatorRole", "ProvisionerRole"):
        for each in template()["Resources"][role]["Properties"]["Policies"]:
            policy = each["Fn::If"][1] if "Fn::If" in each else each
            for statement in policy["PolicyDocument"]["Statement"]:
                granted |= set(statement["Action"])
    assert set(ACTION.findall(page.partition("\n- ")[0])) == granted


@pytest.mark.parametrize("reason", NOT_USED)
def test_a_right_that_is_left_out_exists(reason):
    for pattern in NOT_USED[reason]:
        assert [each for each in asked_for() if fnmatchcase(each, pattern)], pattern
