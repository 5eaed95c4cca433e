"""What a load test asks of AWS: template, requests and payloads, none of which can run here."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.ops.infra.test_template import lint
from zae_limiter.models.stack import StackOptions
from zae_limiter_lab.loadtest import LoadPlan, LoadTestError, tunnel
from zae_limiter_lab.loadtest.cloud import LoadStackManager, LoadTestStack
from zae_limiter_lab.loadtest.cloud_runs import CloudRuns
from zae_limiter_lab.loadtest.orchestrator import (
    METADATA_VARIABLE,
    WORKER_LIFE_S,
    WorkerFleet,
    own_address,
    worker_payload,
)
from zae_limiter_lab.loadtest.template import template
from zae_limiter_ops.infra.template import as_yaml
from zae_limiter_ops.transport.control import ControlError

RESOURCES = template()["Resources"]
PLAN = LoadPlan("a.py", ("A",), "/here", users=20, workers=3, host="my-app")


class Recorder:
    def __init__(self):
        self.calls = []

    def call(self, service, operation, **parameters):
        self.calls.append((service, operation, parameters))
        return {}


@pytest.mark.slow  # it reads the descriptions of all services first
def test_cfn_lint_has_nothing_to_say(tmp_path):
    assert lint(tmp_path, as_yaml(template())) == (0, "")


def test_what_needs_an_image_waits_for_it():
    conditional = {name for name in RESOURCES if RESOURCES[name].get("Condition") == "HasImage"}
    assert conditional == {"Master", "Worker"}
    outputs = template()["Outputs"]
    assert {name for name in outputs if "Condition" in outputs[name]} == {
        "MasterTask",
        "WorkerFunction",
    }


def test_only_workers_reach_the_master():
    (rule,) = RESOURCES["MasterGroup"]["Properties"]["SecurityGroupIngress"]
    assert rule["SourceSecurityGroupId"] == {"Fn::GetAtt": ["WorkerGroup", "GroupId"]}
    assert rule["FromPort"] == rule["ToPort"] == 5557
    assert RESOURCES["WorkerGroup"]["Properties"]["SecurityGroupIngress"] == []


def test_roles_may_do_what_the_programs_call():
    def permitted(role):
        (policy,) = RESOURCES[role]["Properties"]["Policies"]
        statements = policy["PolicyDocument"]["Statement"]
        return {action for statement in statements for action in statement["Action"]}

    assert "dynamodb:UpdateItem" in permitted("WorkerRole")
    assert not any(action.startswith("lambda:") for action in permitted("WorkerRole"))
    assert {"lambda:InvokeFunction", "s3:PutObject", "dynamodb:Query"} <= permitted("MasterRole")
    assert "ecr:PutImage" in permitted("BuildRole")
    assert "dynamodb:DeleteTable" not in permitted("MasterRole") | permitted("WorkerRole")


def test_a_push_changes_the_image_alone():
    manager = LoadStackManager("my-app", "us-east-1", "http://127.0.0.1:9")
    manager.values = {"ImageUri": "image:2"}
    request = manager._request(StackOptions())  # noqa: SLF001
    manager.close()
    parameters = {each.pop("ParameterKey"): each for each in request["Parameters"]}
    assert parameters.pop("ImageUri") == {"ParameterValue": "image:2"}
    assert all(each == {"UsePreviousValue": True} for each in parameters.values())
    assert request["Tags"] == [{"Key": "ManagedBy", "Value": "zae-limiter-loadtest"}]


def test_functions_are_invoked_again_before_their_time_is_up():
    control = Recorder()
    fleet = WorkerFleet(control, "worker", worker_payload(PLAN, "10.0.0.1"), 3)
    assert fleet.fill(0.0) == 3
    assert fleet.fill(WORKER_LIFE_S - 1) == 0
    assert fleet.fill(WORKER_LIFE_S + 1) == 3
    service, operation, parameters = control.calls[0]
    assert (service, operation) == ("lambda", "invoke")
    assert (parameters["FunctionName"], parameters["InvocationType"]) == ("worker", "Event")
    event = json.loads(parameters["Payload"])
    assert (event["mode"], event["master"], event["port"]) == ("worker", "10.0.0.1", 5557)
    assert event["plan"]["classes"] == ["A"]
    assert "folder" not in event["plan"]  # that of the image counts


def test_the_address_comes_from_the_metadata_of_the_container():
    class Metadata(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"Networks": [{"IPv4Addresses": ["10.1.2.3"]}]}')

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.handle_request).start()
        url = f"http://127.0.0.1:{server.server_port}/v4"
        assert own_address({METADATA_VARIABLE: url}) == "10.1.2.3"
    with pytest.raises(LoadTestError, match="runs on ECS only"):
        own_address({})


TASK = {
    "taskArn": "arn:aws:ecs:eu-west-1:1:task/my-app-loadtest/abc",
    "containers": [{"name": "other", "runtimeId": "x"}, {"name": "master", "runtimeId": "abc-1"}],
}


def test_the_tunnel_leads_to_the_web_interface_of_the_master():
    request = tunnel.session_request("my-app-loadtest", TASK, 9000)
    assert request == {
        "Target": "ecs:my-app-loadtest_abc_abc-1",
        "DocumentName": "AWS-StartPortForwardingSession",
        "Parameters": {"portNumber": ["8089"], "localPortNumber": ["9000"]},
    }
    session = {"SessionId": "s", "TokenValue": "t", "StreamUrl": "u", "ResponseMetadata": {}}
    command = tunnel.plugin_command("plugin", session, request, "eu-west-1")
    assert command[0] == "plugin"
    assert json.loads(command[1]) == {"SessionId": "s", "TokenValue": "t", "StreamUrl": "u"}
    assert command[2:5] == ["eu-west-1", "StartSession", ""]
    assert json.loads(command[5]) == {"Target": request["Target"]}


def test_without_the_plugin_nothing_is_started(monkeypatch):
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(LoadTestError, match="Session Manager plugin"):
        tunnel.find_plugin()


def test_a_tunnel_that_ends_is_reported():
    with pytest.raises(LoadTestError, match="does not answer"):
        tunnel.wait_until_served("http://127.0.0.1:9", lambda: False)


class Stack:
    """A load-test stack whose control plane answers from a list."""

    look_s = 0.0
    limiter, name = "my-app", "my-app-loadtest"

    def __init__(self, **answers):
        self.answers, self.calls = answers, []
        self.control = self.manager = self

    def outputs(self):
        return {
            "Cluster": "cluster",
            "MasterTask": "task:1",
            "SubnetIds": "subnet-1,subnet-2",
            "MasterGroup": "sg-1",
            "FilesBucket": "files",
        }

    def call(self, service, operation, **parameters):
        self.calls.append((operation, parameters))
        answer = self.answers[operation]
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def invoke(self, function, event):
        self.calls.append((function, event))
        return {"report": {"seconds": 1}}


STARTED = {"tasks": [{"taskArn": "arn:1"}]}
NO_FILE = ControlError("s3", "NoSuchKey", "none")


def test_a_plan_runs_in_one_function():
    stack = Stack()
    plan = LoadPlan("a.py", ("A",), "/here", users=5, html="/here/x.html")
    assert CloudRuns(stack).run_in_function(plan) == {"seconds": 1}
    ((function, event),) = stack.calls
    assert (function, event["mode"]) == ("my-app-loadtest-worker", "headless")
    assert (event["plan"]["host"], event["plan"]["users"]) == ("my-app", 5)
    assert "folder" not in event["plan"]
    json.dumps(event)


def test_a_master_runs_in_the_subnets_of_the_stack():
    stack = Stack(run_task=STARTED)
    assert CloudRuns(stack).start_master(PLAN, "run-1", web=True) == "arn:1"
    ((_, request),) = stack.calls
    network = request["networkConfiguration"]["awsvpcConfiguration"]
    assert network["subnets"] == ["subnet-1", "subnet-2"]
    assert network["securityGroups"] == ["sg-1"]
    assert (request["launchType"], request["enableExecuteCommand"]) == ("FARGATE", True)
    (override,) = request["overrides"]["containerOverrides"]
    values = {each["name"]: each["value"] for each in override["environment"]}
    assert (override["name"], values["WEB_UI"], values["RUN_ID"]) == ("master", "1", "run-1")
    assert LoadPlan.of_json(values["PLAN"]).workers == 3


def test_a_master_that_cannot_start_says_why():
    stack = Stack(run_task={"tasks": [], "failures": [{"reason": "no capacity"}]})
    with pytest.raises(LoadTestError, match="could not be started: no capacity"):
        CloudRuns(stack).start_master(PLAN, "run-1")


def test_ctrl_c_stops_the_master():
    stack = Stack(run_task=STARTED, get_object=KeyboardInterrupt(), stop_task={})
    with pytest.raises(KeyboardInterrupt):
        CloudRuns(stack).run_distributed(PLAN, print)
    assert stack.calls[-1][0] == "stop_task"
    assert stack.calls[-1][1]["task"] == "arn:1"


def test_a_master_that_stops_without_a_report_is_an_error():
    stopped = {"tasks": [{"lastStatus": "STOPPED"}]}
    stack = Stack(run_task=STARTED, get_object=NO_FILE, describe_tasks=stopped, stop_task={})
    with pytest.raises(LoadTestError, match="has stopped without a report"):
        CloudRuns(stack).run_distributed(PLAN, print)


def test_what_the_master_finds_wrong_is_raised():
    answer = {"Body": io.BytesIO(b'{"error": "a.py has no user class"}')}
    stack = Stack(run_task=STARTED, get_object=answer, stop_task={})
    with pytest.raises(LoadTestError, match=r"a\.py has no user class"):
        CloudRuns(stack).run_distributed(PLAN, print)


def test_a_file_that_cannot_be_deleted_ends_the_deletion():
    stack = LoadTestStack("my-app", "us-east-1", "http://127.0.0.1:9")
    stack.close()
    stack.control = Stack(
        list_objects_v2={"Contents": [{"Key": "runs/1"}]},
        delete_objects={"Errors": [{"Key": "runs/1", "Code": "AccessDenied"}]},
    )
    with pytest.raises(LoadTestError, match="runs/1 of bucket files cannot be deleted: AccessD"):
        stack._empty("files")  # noqa: SLF001


def test_a_task_is_waited_for():
    waiting = [{"tasks": [{"lastStatus": status}]} for status in ("PENDING", "RUNNING")]
    unknown = {"tasks": [], "failures": [{"reason": "MISSING"}]}  # to ECS, which was just asked
    runs = CloudRuns(Stack(describe_tasks=[unknown, *waiting]))
    assert runs.wait_until_running("arn:1") == {"lastStatus": "RUNNING"}
    gone = {"tasks": [{"lastStatus": "STOPPED", "stoppedReason": "no image"}]}
    with pytest.raises(LoadTestError, match="has stopped: no image"):
        CloudRuns(Stack(describe_tasks=gone)).wait_until_running("arn:1")
