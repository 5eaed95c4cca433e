"""The template: what local control planes ignore, and what must never change."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zae_limiter.dynamodb import table
from zae_limiter.models.stack import StackOptions
from zae_limiter.naming import MAX_STACK_LENGTH
from zae_limiter_lab.loadtest.cloud import SUFFIX as LOAD_SUFFIX
from zae_limiter_lab.loadtest.template import template as load_template
from zae_limiter_ops.infra import aggregator, names, parameters
from zae_limiter_ops.infra.provisioner import limits_template
from zae_limiter_ops.infra.template import as_yaml, template
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.transport.partitions import URL_SUFFIX

TEMPLATE = template()
RESOURCES = TEMPLATE["Resources"]


def properties(logical_id):
    return RESOURCES[logical_id]["Properties"]


def nodes(value):
    """Iterate over every mapping in a value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from nodes(each)


@pytest.mark.slow  # it reads the descriptions of all services first
def test_cfn_lint_has_nothing_to_say(tmp_path):
    assert lint(tmp_path, as_yaml()) == (0, "")


def lint(tmp_path, text):
    file = tmp_path / "template.yaml"
    file.write_text(text)
    program = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run(
        [program, "--include-checks", "I", "--", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, found.stdout


def test_it_is_the_same_text_each_time_and_without_aliases():
    text = as_yaml()
    assert text == as_yaml()
    assert yaml.safe_load(text) == json.loads(json.dumps(TEMPLATE))
    assert "&id" not in text
    assert (
        len(json.dumps(TEMPLATE, separators=(",", ":"))) < 51_200
    )  # CloudFormation's limit for a request


def test_the_placeholder_never_changes():
    """CloudFormation would replace the uploaded code with a changed placeholder."""
    assert aggregator.PLACEHOLDER == (
        "def handler(event, context):\n"
        '    raise RuntimeError("no code yet: run zae-limiter upgrade")\n'
    )
    for function in ("Aggregator", "Provisioner"):
        assert properties(function)["Code"] == {"ZipFile": aggregator.PLACEHOLDER}
        assert properties(function)["Handler"] == "index.handler"


def test_both_functions_get_the_domain_of_their_partition_from_the_template():
    """China and the European Sovereign Cloud have others, which no text can tell by the region."""
    for function in ("Aggregator", "Provisioner"):
        variables = properties(function)["Environment"]["Variables"]
        assert variables[URL_SUFFIX] == {"Ref": "AWS::URLSuffix"}


def test_local_control_planes_understand_every_function():
    used = {name for node in nodes(TEMPLATE) for name in node if name.startswith("Fn::")}
    assert used <= {
        *("Fn::And", "Fn::Equals", "Fn::If", "Fn::Not", "Fn::Or"),  # in their long form
        *("Fn::GetAtt", "Fn::Sub"),
    }


def test_every_condition_exists_and_is_used():
    defined = set(TEMPLATE["Conditions"])
    used = {
        node["Condition"] for node in nodes(TEMPLATE) if isinstance(node.get("Condition"), str)
    } | {node["Fn::If"][0] for node in nodes(TEMPLATE) if "Fn::If" in node}
    assert used == defined


# --- the table


def test_the_table_is_that_of_create_table():
    request = table.create_request("-")
    for name in ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes"):
        assert properties("Table")[name] == request[name]
    assert properties("Table")["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert properties("Table")["TableName"] == {"Ref": "AWS::StackName"}


def test_the_table_has_ttl_recovery_and_protection():
    assert properties("Table")["TimeToLiveSpecification"] == {
        "AttributeName": "ttl",
        "Enabled": True,
    }
    on, off = properties("Table")["PointInTimeRecoverySpecification"]["Fn::If"][1:]
    assert on == {
        "PointInTimeRecoveryEnabled": True,
        "RecoveryPeriodInDays": {"Ref": "PitrRecoveryDays"},
    }
    assert off == {"PointInTimeRecoveryEnabled": False}
    assert properties("Table")["DeletionProtectionEnabled"] == {
        "Fn::If": ["IsProtected", True, False]
    }
    assert RESOURCES["Table"]["UpdateReplacePolicy"] == "Retain"


# --- the aggregator


def test_the_event_source_retries_by_age_bisects_and_reports_single_records():
    source = properties("AggregatorEventSource")
    assert source["MaximumRetryAttempts"] == -1  # without end, until a record is too old
    stream_keeps_s = 24 * 3600
    assert stream_keeps_s - 2 * 3600 < source["MaximumRecordAgeInSeconds"] < stream_keeps_s
    assert source["BisectBatchOnFunctionError"] is True
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["MaximumBatchingWindowInSeconds"] == 5
    assert source["StartingPosition"] == "TRIM_HORIZON"


def test_failed_batches_are_kept_whole_in_the_archive_or_named_in_the_queue():
    """Lambda sends whole batches to S3, and only their place in the stream to SQS."""
    destination = properties("AggregatorEventSource")["DestinationConfig"]["OnFailure"]
    assert destination["Destination"] == {
        "Fn::If": [
            "KeepsBatches",
            {"Fn::GetAtt": ["AuditArchive", "Arn"]},
            {"Fn::GetAtt": ["AggregatorDeadLetterQueue", "Arn"]},
        ]
    }
    assert TEMPLATE["Conditions"]["KeepsBatches"] == {
        "Fn::And": [
            {"Condition": "HasArchive"},
            {"Fn::Equals": [{"Ref": "AWS::Partition"}, "aws"]},
        ]
    }
    assert RESOURCES["AggregatorDeadLetterQueue"]["Condition"] == "HasQueue"
    (rule,) = properties("AuditArchive")["LifecycleConfiguration"]["Rules"]
    assert rule["Prefix"] == "audit/"  # kept batches stay readable without a restore


def test_the_aggregator_may_write_where_its_failed_batches_go():
    policies = {}
    for each in properties("AggregatorRole")["Policies"]:
        condition, policy = each.get("Fn::If", (None, each))[:2]
        (*statements,) = policy["PolicyDocument"]["Statement"]
        policies[policy["PolicyName"]] = condition, statements
    condition, (objects, bucket) = policies["archive"]
    assert condition == "HasArchive"
    assert objects["Action"] == ["s3:PutObject"]
    assert bucket["Action"] == ["s3:ListBucket"]
    assert bucket["Resource"] == [{"Fn::GetAtt": ["AuditArchive", "Arn"]}]
    condition, (queue,) = policies["dead-letters"]
    assert (condition, queue["Action"]) == ("HasQueue", ["sqs:SendMessage"])


def test_the_queue_can_be_created_again_at_once():
    """SQS refuses the name of a deleted queue for a minute, so CloudFormation chooses the name."""
    assert "QueueName" not in properties("AggregatorDeadLetterQueue")


def test_the_event_source_filters_turned_hours_and_removed_events():
    filters = properties("AggregatorEventSource")["FilterCriteria"]["Filters"]["Fn::If"]
    patterns = [json.loads(each["Pattern"]) for each in filters[1]]
    assert patterns == [
        {"dynamodb": {"NewImage": {"op": {"S": [{"prefix": "~"}]}}}},
        {"dynamodb": {"OldImage": {"SK": {"S": [{"prefix": "#AUDIT#"}]}}}},
    ]
    assert [json.loads(each["Pattern"]) for each in filters[2]] == patterns[:1]


def test_the_function_is_small_traced_and_bounded():
    function = properties("Aggregator")
    assert function["Runtime"] == "python3.12"
    assert function["Architectures"] == ["arm64"]
    assert function["MemorySize"] == {"Ref": "LambdaMemory"}
    assert function["Timeout"] == {"Ref": "LambdaTimeout"}
    assert function["ReservedConcurrentExecutions"]["Fn::If"][0] == "HasConcurrency"
    assert function["TracingConfig"]["Mode"]["Fn::If"] == ["HasTracing", "Active", "PassThrough"]
    assert RESOURCES["Aggregator"]["DependsOn"] == "AggregatorLogGroup"


def test_the_provisioner_has_the_time_that_a_large_manifest_takes():
    function = properties("Provisioner")
    assert (function["Runtime"], function["Architectures"]) == ("python3.12", ["arm64"])
    assert function["Timeout"] == 900
    assert function["MemorySize"] == {"Ref": "LambdaMemory"}
    assert RESOURCES["Provisioner"]["DependsOn"] == "ProvisionerLogGroup"
    assert TEMPLATE["Outputs"]["ProvisionerArn"]["Value"] == {"Fn::GetAtt": ["Provisioner", "Arn"]}


def test_the_template_of_a_manifest_finds_the_function_by_import():
    manifest = LimitsManifest.from_dict(
        {
            "namespace": "prod",
            "system": {"limits": {"rpm": {"capacity": 5}}, "on_unavailable": "allow"},
            "entities": {"user": {"parent": "team", "cascade": True}},
        }
    )
    body = limits_template("my-app", manifest)
    (resource,) = body["Resources"].values()
    assert resource["Type"] == "Custom::ZaeLimiterLimits"
    wanted = resource["Properties"]
    assert wanted["ServiceToken"] == {"Fn::ImportValue": "my-app-ProvisionerArn"}
    assert wanted["ServiceTimeout"] > 900  # the function answers first
    as_text = json.loads(json.dumps(wanted["Manifest"]), parse_int=str)  # as CloudFormation does
    as_text["entities"]["user"]["cascade"] = "true"
    assert LimitsManifest.from_dict(as_text) == manifest


def test_the_template_of_a_manifest_has_no_null_which_cloudformation_refuses():
    limits = {"t": "5/month@UTC,hold=never,warn=none", "p": "5/concurrent,soft"}
    manifest = LimitsManifest.from_dict({"system": {"limits": limits}})
    assert "null" not in json.dumps(limits_template("my-app", manifest))


@pytest.mark.slow  # cfn-lint takes seconds
def test_the_template_of_a_manifest_has_no_warning(tmp_path):
    limits = {"rpm": {"capacity": 5}, "t": "5/month@UTC,hold=never"}
    manifest = LimitsManifest.from_dict({"system": {"limits": limits}})
    assert lint(tmp_path, as_yaml(limits_template("my-app", manifest))) == (0, "")


def test_the_archive_is_private_encrypted_kept_and_moves_to_glacier():
    archive = RESOURCES["AuditArchive"]
    assert archive["DeletionPolicy"] == "RetainExceptOnCreate"
    assert archive["UpdateReplacePolicy"] == "Retain"
    assert set(archive["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = archive["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["Transitions"] == [
        {"StorageClass": "GLACIER", "TransitionInDays": {"Ref": "AuditArchiveGlacierDays"}}
    ]
    assert "BucketName" not in archive["Properties"]  # CloudFormation names it


def test_alarms_watch_errors_duration_lag_lost_batches_and_throttles():
    alarms = {
        name: each["Properties"]
        for name, each in RESOURCES.items()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }
    metrics = {f"{each['Namespace']}/{each['MetricName']}" for each in alarms.values()}
    assert metrics == {
        "AWS/Lambda/Errors",
        "AWS/Lambda/Duration",
        "AWS/Lambda/IteratorAge",
        "AWS/Lambda/DestinationDeliveryFailures",
        "AWS/SQS/ApproximateNumberOfMessagesVisible",
        "AWS/DynamoDB/WriteThrottleEvents",
    }
    for each in alarms.values():
        assert each["AlarmActions"]["Fn::If"][:2] == ["HasTopic", [{"Ref": "AlarmSnsTopic"}]]
    assert parameters.values(StackOptions())["LambdaDurationThresholdMs"] == "48000"


def test_throttles_of_each_index_raise_an_alarm():
    """The metric of a table does not contain its indexes."""
    watched = []
    for each in RESOURCES.values():
        alarm = each["Properties"]
        if alarm.get("MetricName") == "WriteThrottleEvents":
            assert each["Condition"] == "HasAlarms"
            watched.append({each["Name"]: each["Value"] for each in alarm["Dimensions"]})
    named = [{"GlobalSecondaryIndexName": index.name} for index in table.INDEXES]
    assert watched == [{"TableName": {"Ref": "Table"}, **index} for index in [{}, *named]]


# --- roles and policies


def test_every_role_has_the_boundary_and_goes_through_the_format():
    roles = [each for each in RESOURCES.values() if each["Type"] == "AWS::IAM::Role"]
    assert len(roles) == 5
    for role in roles:
        boundary = role["Properties"]["PermissionsBoundary"]
        assert boundary["Fn::If"][:2] == ["HasBoundary", {"Ref": "PermissionBoundary"}]
        name = role["Properties"]["RoleName"]["Fn::Sub"]
        assert name.startswith("${RoleNamePrefix}${AWS::StackName}-")
        assert name.endswith("${RoleNameSuffix}")


def test_six_policies_are_made_unless_iam_is_left_out():
    policies = [each for each in RESOURCES.values() if each["Type"] == "AWS::IAM::ManagedPolicy"]
    assert {each["Condition"] for each in policies} == {"HasIam"}
    made = {each["Properties"]["ManagedPolicyName"]["Fn::Sub"] for each in policies}
    assert made == {
        f"${{PolicyNamePrefix}}${{AWS::StackName}}-{component}${{PolicyNameSuffix}}"
        for component in names.POLICIES
    }


def test_names_stay_within_bounds():
    longest = "a" * 55
    for component in names.ROLES:
        assert len(component) <= 8
        assert len(names.role(longest, component)) <= 64
    for component in names.POLICIES:
        assert len(component) <= 8
        assert len(names.policy(longest, component, "p" * 28 + "{}" + "s" * 28)) <= 120
    assert len(names.provisioner_function(longest[:44])) <= 64  # Lambda's bound
    with pytest.raises(ValueError, match="longer than 64 characters"):
        names.role(longest, "admin", "pb-{}-PowerUser")


LONGEST_NAMES = {  # by type: the property, and AWS's bound
    "AWS::CloudWatch::Alarm": ("AlarmName", 255),
    "AWS::CodeBuild::Project": ("Name", 150),
    "AWS::DynamoDB::Table": ("TableName", 255),
    "AWS::ECS::Cluster": ("ClusterName", 255),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", 128),
    "AWS::IAM::Role": ("RoleName", 64),
    "AWS::Lambda::Function": ("FunctionName", 64),
    "AWS::Logs::LogGroup": ("LogGroupName", 512),
}


@pytest.mark.parametrize(
    ("body", "suffix"), [(TEMPLATE, ""), (load_template(), LOAD_SUFFIX)], ids=["limiter", "load"]
)
def test_every_part_of_the_stack_with_the_longest_name_has_a_name_that_aws_takes(body, suffix):
    values = {
        "AWS::StackName": "n" * MAX_STACK_LENGTH + suffix,
        **dict.fromkeys(("RoleNamePrefix", "RoleNameSuffix"), ""),
        **dict.fromkeys(("PolicyNamePrefix", "PolicyNameSuffix"), ""),
    }
    named = 0
    for resource in body["Resources"].values():
        name_property, longest = LONGEST_NAMES.get(resource["Type"], ("", 0))
        name = resource.get("Properties", {}).get(name_property)
        if name is not None:
            text = name["Fn::Sub"] if "Fn::Sub" in name else f"${{{name['Ref']}}}"
            for variable, value in values.items():
                text = text.replace(f"${{{variable}}}", value)
            assert "${" not in text
            assert len(text) <= longest, text
            named += 1
    assert named > 3


def test_outputs_are_exported_under_the_name_of_the_stack():
    for name, output in TEMPLATE["Outputs"].items():
        assert output["Export"]["Name"] == {"Fn::Sub": f"${{AWS::StackName}}-{name}"}
    assert {"TableName", "TableArn", "StreamArn", "AggregatorArn"} <= set(TEMPLATE["Outputs"])
