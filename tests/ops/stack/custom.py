"""Our template with a custom resource that fails, or that takes some seconds."""

from zae_limiter_ops.infra.template import template

ANSWER = """
import json, time, urllib.request

def handler(event, context):
    time.sleep({seconds})
    status = "{deletion}" if event["RequestType"] == "Delete" else "{status}"
    body = json.dumps({{
        "Status": status,
        "Reason": "the test wants it so",
        "PhysicalResourceId": "custom-resource",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }}).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT")
    urllib.request.urlopen(request).read()
"""


def with_custom_resource(*, status="SUCCESS", deletion="SUCCESS", seconds=0):
    """Return our template with a custom resource that is created last."""
    body = template()
    body["Resources"]["CustomFunction"] = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "FunctionName": {"Fn::Sub": "${AWS::StackName}-custom"},
            "Runtime": "python3.12",
            "Handler": "index.handler",
            "Role": {"Fn::GetAtt": ["AggregatorRole", "Arn"]},
            "Timeout": 30,
            "Code": {"ZipFile": ANSWER.format(status=status, deletion=deletion, seconds=seconds)},
        },
    }
    body["Resources"]["Custom"] = {
        "Type": "Custom::Test",
        "DependsOn": ["AggregatorEventSource", "TableThrottles"],
        "Properties": {
            "ServiceToken": {"Fn::GetAtt": ["CustomFunction", "Arn"]},
            "ServiceTimeout": 60,
        },
    }
    return body
