"""From the first deployment to the deletion, on a real control plane."""

import json
import re
from dataclasses import replace

import click
import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.cli.terminal import ANSI, terminal
from tests.ops.stack.usage import is_cleared, use_and_turn_the_hour, wait_until
from tests.support.aws_rules import watch
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter._version import __version__
from zae_limiter.exceptions import IncompatibleSchemaError, VersionMismatchError
from zae_limiter.models.stack import StackOptions, described_options
from zae_limiter_ops._sync.infra.deployment import Deployment, functions
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.infra import names, packages
from zae_limiter_ops.infra.aggregator import PLACEHOLDER
from zae_limiter_ops.infra.template import template
from zae_limiter_ops.transport.control import ControlError

LIMITS = [Limit.per_minute("rpm", 10)]


async def test_a_limiter_is_deployed_used_reported_and_deleted(command, place, opening, deployment):
    with Stopwatch() as until_used:
        deployed = command("deploy", "--output", "json")
        with SyncRepository.open(**opening) as repository:
            with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 3}, limits=LIMITS):
                pass
            assert repository.get_bucket("key-1", "gpt-4", "rpm").tokens == 7
    assert until_used.within(30), until_used
    assert deployed.code == 0
    assert "CREATE_COMPLETE" in deployed.err  # the progress, line by line
    async with RateLimiter(await Repository.open(**opening)) as limiter:
        async with limiter.acquire("key-2", "gpt-4", {"rpm": 3}, limits=LIMITS):
            assert await limiter.available("key-2", "gpt-4", limits=LIMITS) == {"rpm": 7}
        await limiter.repository.close()
    use_and_turn_the_hour({**opening, "namespace": "other"})
    found = command("status", "--output", "json").json
    assert found["cfn_status"] == "CREATE_COMPLETE"
    assert (found["table_status"], found["available"]) == ("ACTIVE", True)
    assert (found["schema_version"], found["lambda_version"]) == ("1", __version__)
    assert found["details"]["functions"][0]["is_current"]
    assert found["details"]["namespaces"] == 2
    assert found["details"]["notes"] == []
    lines = command("status")
    assert f"{names.aggregator_function(place[0])}: Active, this version's code" in lines.out
    assert place[0] in [each["stack_name"] for each in command("list", "--output", "json").json]
    assert command("check", "--output", "json").json["compatible"]
    assert_documented("deploy", json.loads(deployed.out))
    assert_documented("status", found)
    assert_documented("list", command("list", "--output", "json").json[0])
    assert_documented("check", command("check", "--output", "json").json)
    assert_documented("upgrade", command("upgrade", "--output", "json").json)
    deleted = command("delete", "--yes")
    assert (deleted.code, deleted.out) == (0, f"{place[0]} is deleted\n")
    assert left_of(deployment) == []


def test_the_aggregator_stores_an_hour(deployment, opening):
    deployment.deploy(StackOptions())
    use_and_turn_the_hour(opening)
    wait_until(lambda: is_cleared(deployment))
    with SyncRepository.open(**opening) as repository:
        hours, _ = repository.get_usage_snapshots("key-1", window_type="hourly")
    assert [hour.counters["rpm"] for hour in hours] == [7, 1]


def test_a_second_deployment_touches_nothing(deployment, place, command):
    deployment.deploy(StackOptions())
    before = traces(deployment)
    with Stopwatch() as watch:
        again = command("deploy", "--output", "json").json
    assert watch.within(10), watch
    assert (again["stack"], again["functions"]) == ("unchanged", [])
    assert again["outputs"]["TableName"] == place[0]
    assert traces(deployment) == before
    plan = command("deploy", "--plan")
    assert (plan.code, plan.out) == (0, f"{place[0]} is up to date: nothing would change\n")


def test_a_plan_changes_nothing(deployment, command):
    added = command("deploy", "--plan", "--output", "json").json
    assert {"Table", "Aggregator", "AcquireOnlyPolicy"} <= {each["resource"] for each in added}
    assert {each["action"] for each in added} == {"Add"}
    assert deployment.manager.status() is None
    deployment.deploy(StackOptions())
    before = traces(deployment)
    changes = command("deploy", "--plan", "--lambda-memory", 512, "--output", "json").json
    assert sorted(change.pop("resource") for change in changes) == ["Aggregator", "Provisioner"]
    for change in changes:
        assert change == {
            "action": "Modify",
            "type": "AWS::Lambda::Function",
            "replacement": "False",
            "properties": ["MemorySize"],
        }
    assert traces(deployment) == before


def test_an_update_keeps_code_and_data(deployment, opening):
    deployment.deploy(StackOptions())
    use_and_turn_the_hour(opening)
    options = StackOptions(
        lambda_memory=512,
        usage_retention_days=30,
        audit_retention_days=7,
        snapshot_windows="hourly",
    )
    changed = deployment.deploy(options)
    assert changed == ("updated", ())
    configuration = function(deployment)
    assert configuration["MemorySize"] == 512
    assert configuration["CodeSha256"] == packages.aggregator_package().sha256
    assert deployment.version_record()["usage_retention_days"] == 30
    assert deployment.version_record()["audit_retention_days"] == 7
    wait_until(lambda: is_cleared(deployment))
    with SyncRepository.open(**opening) as repository:
        hours, _ = repository.get_usage_snapshots("key-1")
    assert [hour.window_type for hour in hours] == ["hourly", "hourly"]


def test_a_deployment_keeps_the_options_that_it_does_not_name(command, deployment):
    first = ("--enable-deletion-protection", "--pitr-recovery-days", 35, "--tag", "team=search")
    assert command("deploy", *first).code == 0
    assert command("deploy", "--lambda-memory", 512, "--lambda-timeout", 30).code == 0
    assert deployment.options() == StackOptions(
        enable_deletion_protection=True,
        pitr_recovery_days=35,
        lambda_memory=512,
        lambda_timeout=30,
        tags={"team": "search"},
    )
    line = command("deploy", "--no-deletion-protection", "--no-pitr").error(2)
    assert "the table is no longer protected from deletion" in line
    assert "point-in-time recovery goes from 35 days to off" in line
    assert "add --allow-less-protection" in line
    assert deployment.options().enable_deletion_protection, "nothing was changed"
    planned = command("deploy", "--no-deletion-protection", "--plan")
    assert "less protection: the table is no longer protected from deletion" in planned.err
    less = ("--no-deletion-protection", "--no-pitr", "--allow-less-protection")
    assert command("deploy", *less).code == 0
    assert deployment.options() == StackOptions(
        lambda_memory=512, lambda_timeout=30, tags={"team": "search"}
    )


ROLE = "arn:aws:iam::000000000000:role/shared"
EVERY_OPTION = StackOptions(
    snapshot_windows="hourly",
    usage_retention_days=120,
    audit_retention_days=100,
    pitr_recovery_days=7,
    log_retention_days=60,
    lambda_timeout=30,
    lambda_memory=512,
    reserved_concurrency=2,
    lambda_duration_threshold_pct=50,
    alarm_sns_topic="arn:aws:sns:us-east-1:000000000000:alarms",
    permission_boundary="arn:aws:iam::aws:policy/PowerUserAccess",
    role_name_format="pb-{}-r",
    policy_name_format="pb-{}-p",
    audit_archive_glacier_days=30,
    enable_tracing=True,
    create_iam_roles=True,
    aggregator_role_arn=ROLE,
    enable_deletion_protection=True,
    tags={"team": "search"},
)


def test_every_option_is_kept_until_a_flag_takes_it_away(command, deployment):
    deployment.deploy(EVERY_OPTION)
    assert command("deploy", "--lambda-memory", 256).code == 0
    assert deployment.options() == replace(EVERY_OPTION, lambda_memory=256)
    unset = [each.option.unset_flag for each in described_options() if each.option.unset_flag]
    off = ("--no-tracing", "--no-create-iam-roles", "--no-deletion-protection")
    line = command("deploy", *unset, *off).error(2)
    for lowered in (
        "the table is no longer protected from deletion",
        "point-in-time recovery goes from 7 days to off",
        f"the permission boundary {EVERY_OPTION.permission_boundary} becomes none",
        f"the alarms no longer notify {EVERY_OPTION.alarm_sns_topic}",
    ):
        assert lowered in line
    assert command("deploy", *unset, *off, "--allow-less-protection").code == 0
    assert deployment.options() == StackOptions(
        snapshot_windows="hourly",
        usage_retention_days=120,
        audit_retention_days=100,
        log_retention_days=60,
        lambda_timeout=30,
        lambda_duration_threshold_pct=50,
        audit_archive_glacier_days=30,
        tags={"team": "search"},
    )


def test_an_option_and_the_flag_that_takes_it_away_contradict_each_other(command):
    for each in described_options():
        if flag := each.option.unset_flag:
            value = getattr(EVERY_OPTION, each.name)
            line = command("deploy", each.option.flag, value, flag).error(2)
            assert f"{flag} contradicts {each.option.flag}" in line


def test_a_person_is_asked_before_a_stack_protects_less(place, deployment):
    deployment.deploy(StackOptions(enable_deletion_protection=True, lambda_memory=512))
    words = ("deploy", "--no-deletion-protection", "--name", place[0], "--region", place[1])
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for answer, protected in ((b"n\n", True), (b"y\n", False)):
        with terminal(*words, "--endpoint-url", place[2], **keys) as screen:
            screen.read_until("[y/N]:")
            screen.press(answer)
            assert screen.wait() == int(protected), screen.output
        assert "the table is no longer protected from deletion" in " ".join(
            ANSI.sub("", screen.output).split()
        )
        options = StackOptions(enable_deletion_protection=protected, lambda_memory=512)
        assert deployment.options() == options


def test_without_waiting_the_second_run_finishes_it(command, deployment):
    assert command("deploy", "--no-wait", "--output", "json").out.count('"begun"') == 1
    wait_until(lambda: deployment.manager.status() == "CREATE_COMPLETE")
    assert deployment.version_record() is None
    finished = command("deploy").out.splitlines()
    new_code = [f"new code: {name}" for name in functions(deployment.name)]
    assert finished == [f"{deployment.name} updated", *new_code]
    assert deployment.version_record()["lambda_version"] == __version__


def test_without_roles_there_is_no_aggregator_and_the_command_says_so(command, deployment):
    said = command("deploy", "--no-iam")
    assert said.code == 0
    assert "aggregator and provisioner are left out; name a role for them: " in said.err
    assert [function(deployment, name) for name in functions(deployment.name)] == [None, None]
    assert "lambda_version" not in deployment.version_record()


def test_a_table_of_another_program_is_refused(deployment, command):
    with deployment.opened_engine() as engine:
        engine.client.call(
            "CreateTable",
            {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            },
        )
        with watch.unwatched():  # the table has other keys than ours
            engine.client.call("PutItem", {"Item": {"id": {"S": "kept"}}})
        line = command("deploy").error(1)
        assert "a table of this name exists that belongs to no stack" in line
        assert engine.client.call("Scan", {})["Count"] == 1
        engine.client.call("DeleteTable", {})


def test_a_protected_table_keeps_its_stack(command, deployment):
    deployment.deploy(StackOptions(enable_deletion_protection=True))
    line = command("delete", "--yes").error(1)
    assert "deploy it with --no-deletion-protection first" in line
    assert deployment.manager.status() == "CREATE_COMPLETE"
    deployment.deploy(StackOptions())


def test_an_archive_with_events_outlives_the_stack_and_is_named(command, deployment):
    deployment.deploy(StackOptions())
    bucket = deployment.manager.outputs()["ArchiveBucket"]
    control = deployment.manager.control
    control.call("s3", "put_object", Bucket=bucket, Key="audit/x", Body=b"event")
    deleted = json.loads(command("delete", "--yes", "--output", "json").out)
    assert deleted == {"name": deployment.name, "deleted": True, "kept_bucket": bucket}
    control.call("s3", "delete_object", Bucket=bucket, Key="audit/x")
    control.call("s3", "delete_bucket", Bucket=bucket)


def test_a_deletion_that_was_killed_before_the_archive_is_finished_by_the_next(command, deployment):
    deployment.deploy(StackOptions())
    bucket = deployment.manager.outputs()["ArchiveBucket"]
    deployment.manager.delete()  # the stack alone: its archive is retained
    control = deployment.manager.control
    assert bucket in buckets_of(control)
    finished = command("delete", "--yes")
    assert (finished.code, finished.out) == (
        0,
        f"{bucket}, left by an interrupted deletion, is deleted\n",
    )
    assert bucket not in buckets_of(control)
    assert "there is no stack named" in command("delete", "--yes").error(1)


def buckets_of(control):
    return [bucket["Name"] for bucket in control.call("s3", "list_buckets")["Buckets"]]


@pytest.mark.parametrize("words", [("delete", "--yes"), ("status",), ("check",), ("upgrade",)])
def test_a_stack_that_is_missing_is_said_in_one_line(command, place, words):
    line = command(*words).error(1)
    assert f"named {place[0]!r}; list " in line
    assert ": zae-limiter list --region us-east-1" in line


def test_deleting_asks_and_names_what_is_lost(command, deployment):
    deployment.deploy(StackOptions())
    line = command("delete").error(2)
    assert "entities, limits, buckets, usage and audit events of all namespaces" in line
    assert deployment.manager.status() == "CREATE_COMPLETE"


# --- versions


def make_older(deployment, version="0.9.0"):
    """Give the functions other code, as a deployment of another version would have."""
    code = packages.build("zae_limiter_aggregator.report")
    control = deployment.manager.control
    for name in functions(deployment.name):
        control.call("lambda", "update_function_code", FunctionName=name, ZipFile=code.content)
    with deployment.opened_engine() as engine:
        record = engine.documents.get("_", "version")
        engine.documents.put("_", "version", {**record, "lambda_version": version})
    for name in functions(deployment.name):
        wait_until(lambda: function(deployment, name)["LastUpdateStatus"] == "Successful")  # noqa: B023


def has_this_code(deployment):
    return all(
        function(deployment, name)["CodeSha256"] == package.sha256
        for name, package in functions(deployment.name).items()
    )


def test_older_functions_are_updated_by_opening(deployment, opening):
    deployment.deploy(StackOptions())
    make_older(deployment)
    with SyncRepository.open(**opening, auto_update=False):
        assert not has_this_code(deployment)
    with SyncRepository.open(**opening) as repository:
        assert has_this_code(deployment)
        assert repository.get_version_record()["lambda_version"] == __version__


@pytest.mark.slow  # the test before is short
def test_older_functions_are_updated_by_upgrade_with_the_options_of_the_stack(deployment, command):
    deployment.deploy(StackOptions(lambda_memory=512, tags={"team": "search"}))
    make_older(deployment)
    said = command("check")
    assert (said.code, "functions are of an older version" in said.err) == (0, True)
    dry = command("upgrade", "--dry-run", "--output", "json").json
    assert (dry["stack"], dry["functions"]) == ("unchanged", list(functions(deployment.name)))
    assert not has_this_code(deployment)
    done = command("upgrade", "--output", "json").json
    assert done["functions"] == list(functions(deployment.name))
    assert has_this_code(deployment)
    assert function(deployment)["MemorySize"] == 512
    assert {"Key": "team", "Value": "search"} in deployment.manager.describe()["Tags"]


def test_an_older_template_is_updated_by_upgrade_and_a_dry_run_only_says_so(place, command):
    older = template()
    older["Resources"].pop("TableThrottles")
    deployment = Deployment(*place, body=older)
    deployment.deploy(StackOptions())
    before = traces(deployment)
    says = [
        "schema 1 is current",
        f"stack {place[0]} would be updated",
        *(f"would get new code: {name}" for name in functions(place[0])),
    ]
    make_older(deployment)
    assert command("upgrade", "--dry-run").out.splitlines() == says
    assert traces(deployment)[0] == before[0]
    assert not has_this_code(deployment)
    says = [line.replace("would be", "is").replace("would get new", "new") for line in says]
    assert command("upgrade").out.splitlines() == says
    assert f"stack {place[0]} is unchanged" in command("upgrade", "--dry-run").out
    deployment.close()


def test_a_table_of_an_older_schema_is_migrated_by_upgrade_once_it_is_confirmed(
    deployment, opening, command
):
    deployment.deploy(StackOptions(usage_retention_days=30))
    with deployment.opened_engine() as engine:
        record = engine.documents.get("_", "version")
        engine.documents.put("_", "version", {**record, "schema_version": 0})
    said = command("check")
    assert (said.code, "compatible   no" in said.out) == (1, True)
    with pytest.raises(IncompatibleSchemaError, match="zae-limiter upgrade"):
        SyncRepository.open(**opening)
    assert "must be stopped first" in command("upgrade").error(2)
    dry = command("upgrade", "--dry-run", "--output", "json").json
    assert (dry["schema_before"], dry["schema_after"], dry["dry_run"]) == (0, 1, True)
    assert deployment.version_record()["schema_version"] == 0
    done = command("upgrade", "--yes", "--output", "json").json
    assert (done["schema_before"], done["schema_after"], done["stack"]) == (0, 1, "unchanged")
    assert deployment.version_record()["usage_retention_days"] == 30
    with SyncRepository.open(**opening) as repository:
        assert repository.ping()


def test_functions_and_stacks_of_a_newer_version_stay(deployment, opening, command):
    deployment.deploy(StackOptions())
    make_older(deployment, "99.0.0")
    with SyncRepository.open(**opening):
        assert not has_this_code(deployment)
    with pytest.raises(VersionMismatchError, match="update zae-limiter first"):
        deployment.deploy(StackOptions())
    assert "update zae-limiter first" in command("upgrade").error(1)


# --- opening


def test_opening_deploys_a_missing_stack_with_the_options_of_the_builder(opening, deployment):
    builder = SyncRepository.builder().stack(opening["stack"]).region(opening["region"])
    builder.endpoint_url(opening["endpoint_url"]).lambda_memory(512).usage_retention_days(30)
    with builder.build() as repository:
        assert repository.get_version_record()["usage_retention_days"] == 30
        assert repository.get_status().cfn_status == "CREATE_COMPLETE"
        assert function(deployment)["MemorySize"] == 512
        assert repository.create_stack(StackOptions()) == ("updated", ())
        assert repository.delete_stack().existed
    assert left_of(deployment) == []


def test_the_deprecated_constructor_opens_with_ensure_infrastructure(opening, deployment):
    with pytest.warns(DeprecationWarning, match="use SyncRepository.open"):
        repository = SyncRepository(
            name=opening["stack"],
            region=opening["region"],
            endpoint_url=opening["endpoint_url"],
            stack_options=StackOptions(lambda_memory=512),
        )
    repository.ensure_infrastructure()
    with repository:
        assert function(deployment)["MemorySize"] == 512
        with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
            pass


@pytest.mark.slow  # the test before is short
async def test_the_deprecated_limiter_deploys_with_its_options(opening, deployment):
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        limiter = RateLimiter(
            name=opening["stack"],
            region=opening["region"],
            endpoint_url=opening["endpoint_url"],
            stack_options=StackOptions(enable_aggregator=False),
        )
    async with limiter, limiter.acquire("key-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
        pass
    assert deployment.manager.status() == "CREATE_COMPLETE"
    assert function(deployment) is None
    listed = await RateLimiter.list_deployed(opening["region"], opening["endpoint_url"])
    assert opening["stack"] in [each.user_name for each in listed if each.is_healthy]


# --- what a stack leaves and shows


def assert_documented(name, data):
    """Every field of the JSON is named in the help of the command."""
    text = app.get_command(click.Context(app), name).help.partition("JSON: ")[2]
    assert data.keys() <= set(re.findall(r"\w+", text))


def function(deployment, name=None):
    """Return Lambda's configuration of a function, by default of the aggregator."""
    try:
        return deployment.manager.control.call(
            "lambda",
            "get_function_configuration",
            FunctionName=name or names.aggregator_function(deployment.name),
        )
    except ControlError:
        return None


def traces(deployment):
    """Return a fingerprint of the stack, its functions and its version record."""
    control = deployment.manager.control
    events = control.pages("cloudformation", "describe_stack_events", StackName=deployment.name)
    return (
        [event["EventId"] for page in events for event in page["StackEvents"]],
        [function(deployment, name)["LastModified"] for name in functions(deployment.name)],
        deployment.version_record(),
    )


def left_of(deployment):
    """Return the names of everything that still carries the name of the stack."""
    control = deployment.manager.control
    answers = (
        ("dynamodb", "list_tables", "TableNames", None),
        ("lambda", "list_functions", "Functions", "FunctionName"),
        ("lambda", "list_event_source_mappings", "EventSourceMappings", "FunctionArn"),
        ("sqs", "list_queues", "QueueUrls", None),
        ("logs", "describe_log_groups", "logGroups", "logGroupName"),
        ("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
        ("iam", "list_roles", "Roles", "RoleName"),
        ("iam", "list_policies", "Policies", "PolicyName"),
        ("s3", "list_buckets", "Buckets", "Name"),
    )
    left = []
    for service, operation, key, field in answers:
        scope = {"Scope": "Local"} if operation == "list_policies" else {}
        rows = control.call(service, operation, **scope).get(key, ())
        left += [row if field is None else row[field] for row in rows]
    return [name for name in left if deployment.name in name]


def test_the_placeholder_is_not_the_code(deployment):
    deployment.manager.deploy(StackOptions())
    assert not has_this_code(deployment)
    assert "raise RuntimeError" in PLACEHOLDER
    deployment.deploy(StackOptions())
    assert has_this_code(deployment)
