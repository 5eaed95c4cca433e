"""The CloudFormation template of a load-test stack: a Fargate master and functions as workers.

One image serves both. It is built after the stack exists, so the parts that need it are left out
until ``ImageUri`` names it.
"""

from __future__ import annotations

from typing import Any

from zae_limiter_ops.infra.private_buckets import private_bucket
from zae_limiter_ops.infra.statements import READ_CALLS, WRITE_CALLS, actions, allow, document

Resource = dict[str, Any]

DESCRIPTION = "zae-limiter: load tests with Locust, a Fargate master and functions as workers"
MASTER_PORT = 5557  # Locust's own
WEB_PORT = 8089  # Locust's own; reached through a tunnel, no group admits it
MASTER_CONTAINER = "master"
WORKER_TIMEOUT_S = 900  # Lambda's maximum
WORKER_MEMORY_MB = 1769  # one whole core: a worker is one thread
MASTER_CPU, MASTER_MEMORY_MB = 1024, 2048
KEPT_IMAGES = 3
KEPT_DAYS = 30  # of pushed folders and reports
LOG_DAYS = 7
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
_STACK = "${AWS::StackName}"
_PARTITION = "arn:${AWS::Partition}"
_IMAGE = {"Ref": "ImageUri"}


def template() -> dict[str, Any]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": DESCRIPTION,
        "Parameters": _parameters(),
        "Conditions": {
            "HasImage": _is_given("ImageUri"),
            "HasRouteTables": _is_given("RouteTableIds"),
            "HasBoundary": _is_given("PermissionBoundary"),
        },
        "Resources": {
            **_storage(),
            **_network(),
            **_build(),
            **_master(),
            **_worker(),
        },
        "Outputs": _outputs(),
    }


def _parameters() -> dict[str, Any]:
    return {
        "LimiterStack": {"Type": "String", "Description": "Stack of the limiter under test"},
        "VpcId": {"Type": "AWS::EC2::VPC::Id"},
        "SubnetIds": {"Type": "List<AWS::EC2::Subnet::Id>"},
        "RouteTableIds": {
            "Type": "CommaDelimitedList",
            "Default": "",
            "Description": "Route tables that get a gateway to DynamoDB; empty if there is one",
        },
        "ImageUri": {"Type": "String", "Default": "", "Description": "Empty until one is built"},
        "PermissionBoundary": {"Type": "String", "Default": ""},
    }


def _is_given(parameter: str) -> Any:
    joined = {"Fn::Join": ["", {"Ref": parameter}]} if parameter == "RouteTableIds" else None
    return {"Fn::Not": [{"Fn::Equals": [joined or {"Ref": parameter}, ""]}]}


def _storage() -> dict[str, Resource]:
    expiry = {"Id": "Expire", "Status": "Enabled", "ExpirationInDays": KEPT_DAYS}
    lifecycle = (
        '{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":'
        f'"imageCountMoreThan","countNumber":{KEPT_IMAGES}}},"action":{{"type":"expire"}}}}]}}'
    )
    return {
        "Images": {
            "Type": "AWS::ECR::Repository",
            "DeletionPolicy": "Delete",
            "UpdateReplacePolicy": "Delete",
            "Properties": {
                "EmptyOnDelete": True,
                "ImageTagMutability": "IMMUTABLE",
                "LifecyclePolicy": {"LifecyclePolicyText": lifecycle},
                "RepositoryPolicyText": document(
                    {
                        "Sid": "Functions",
                        "Effect": "Allow",
                        "Principal": {"Service": "lambda.amazonaws.com"},
                        "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                    }
                ),
            },
        },
        "Files": {
            "Type": "AWS::S3::Bucket",
            "DeletionPolicy": "Delete",  # the command empties it first
            "UpdateReplacePolicy": "Delete",
            "Properties": {
                **private_bucket(),
                "LifecycleConfiguration": {"Rules": [expiry]},
            },
        },
        **{
            f"{name}Logs": {
                "Type": "AWS::Logs::LogGroup",
                "DeletionPolicy": "Delete",
                "UpdateReplacePolicy": "Delete",
                "Properties": {
                    "LogGroupName": {"Fn::Sub": f"/zae-limiter/{_STACK}/{name.lower()}"},
                    "RetentionInDays": LOG_DAYS,
                },
            }
            for name in ("Master", "Worker", "Build")
        },
    }


def _network() -> dict[str, Resource]:
    from_workers = {
        "IpProtocol": "tcp",
        "FromPort": MASTER_PORT,
        "ToPort": MASTER_PORT,
        "SourceSecurityGroupId": {"Fn::GetAtt": ["WorkerGroup", "GroupId"]},
        "Description": "Workers",
    }
    return {
        "WorkerGroup": _group("Workers of load tests"),
        "MasterGroup": _group("Masters of load tests", from_workers),
        # Functions in a VPC have no way to the internet; this gateway is all that they need.
        "TableEndpoint": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Condition": "HasRouteTables",
            "Properties": {
                "VpcId": {"Ref": "VpcId"},
                "VpcEndpointType": "Gateway",
                "ServiceName": {"Fn::Sub": "com.amazonaws.${AWS::Region}.dynamodb"},
                "RouteTableIds": {"Ref": "RouteTableIds"},
            },
        },
    }


def _group(description: str, *ingress: Any) -> Resource:
    """Return a security group that admits nothing else, and lets everything out."""
    anywhere = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0", "Description": "Any"}
    return {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {
            "GroupDescription": description,
            "VpcId": {"Ref": "VpcId"},
            "SecurityGroupIngress": list(ingress),
            "SecurityGroupEgress": [anywhere],
        },
    }


def _role(service: str, *statements: Any, managed: str | None = None) -> Resource:
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    policies = [{"PolicyName": "calls", "PolicyDocument": document(*statements)}]
    arn = {"Fn::Sub": f"{_PARTITION}:iam::aws:policy/service-role/{managed}"}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": document(trust),
            "PermissionsBoundary": {
                "Fn::If": ["HasBoundary", {"Ref": "PermissionBoundary"}, {"Ref": "AWS::NoValue"}]
            },
            **({"Policies": policies} if statements else {}),
            **({"ManagedPolicyArns": [arn]} if managed else {}),
        },
    }


def _table_statement() -> Any:
    table = f"{_PARTITION}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/${{LimiterStack}}"
    calls = actions("dynamodb", (*READ_CALLS, *WRITE_CALLS, "Query", "DescribeTable"))
    return allow("Table", calls, [{"Fn::Sub": table}, {"Fn::Sub": f"{table}/index/*"}])


def _files_statement(*calls: str) -> Any:
    return allow("Files", [f"s3:{call}" for call in calls], [{"Fn::Sub": "${Files.Arn}/*"}])


def _logs_statement(name: str) -> Any:
    calls = ["logs:CreateLogStream", "logs:PutLogEvents"]
    return allow("Logs", calls, [{"Fn::GetAtt": [f"{name}Logs", "Arn"]}])


def _build() -> dict[str, Resource]:
    pushes = [
        "ecr:BatchCheckLayerAvailability",
        "ecr:CompleteLayerUpload",
        "ecr:InitiateLayerUpload",
        "ecr:PutImage",
        "ecr:UploadLayerPart",
    ]
    return {
        "BuildRole": _role(
            "codebuild",
            allow("Login", ["ecr:GetAuthorizationToken"], ["*"]),
            allow("Push", pushes, [{"Fn::GetAtt": ["Images", "Arn"]}]),
            _files_statement("GetObject", "GetObjectVersion"),
            _logs_statement("Build"),
        ),
        "Build": {
            "Type": "AWS::CodeBuild::Project",
            "Properties": {
                "Name": {"Fn::Sub": f"{_STACK}-build"},
                "Description": "Builds the image of master and workers",
                "ServiceRole": {"Fn::GetAtt": ["BuildRole", "Arn"]},
                "Artifacts": {"Type": "NO_ARTIFACTS"},
                "Source": {"Type": "S3", "Location": {"Fn::Sub": "${Files}/image.zip"}},
                "TimeoutInMinutes": 30,
                "LogsConfig": {
                    "CloudWatchLogs": {"Status": "ENABLED", "GroupName": {"Ref": "BuildLogs"}}
                },
                "Environment": {
                    "Type": "LINUX_CONTAINER",
                    "ComputeType": "BUILD_GENERAL1_SMALL",
                    "Image": BUILD_IMAGE,
                    "PrivilegedMode": True,  # to run Docker inside
                },
            },
        },
    }


def _master() -> dict[str, Resource]:
    tunnel = [
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]
    worker = f"{_PARTITION}:lambda:${{AWS::Region}}:${{AWS::AccountId}}:function:{_STACK}-worker"
    return {
        "Cluster": {
            "Type": "AWS::ECS::Cluster",
            "Properties": {"ClusterName": {"Ref": "AWS::StackName"}},
        },
        "MasterRole": _role(
            "ecs-tasks",
            allow("Tunnel", tunnel, ["*"]),
            allow("Workers", ["lambda:InvokeFunction"], [{"Fn::Sub": worker}]),
            _files_statement("PutObject"),
            _table_statement(),
        ),
        "MasterStartRole": _role("ecs-tasks", managed="AmazonECSTaskExecutionRolePolicy"),
        "Master": {
            "Type": "AWS::ECS::TaskDefinition",
            "Condition": "HasImage",
            "Properties": {
                "Family": {"Fn::Sub": f"{_STACK}-master"},
                "RequiresCompatibilities": ["FARGATE"],
                "NetworkMode": "awsvpc",
                "Cpu": str(MASTER_CPU),
                "Memory": str(MASTER_MEMORY_MB),
                "TaskRoleArn": {"Fn::GetAtt": ["MasterRole", "Arn"]},
                "ExecutionRoleArn": {"Fn::GetAtt": ["MasterStartRole", "Arn"]},
                "ContainerDefinitions": [_container()],
            },
        },
    }


def _container() -> Resource:
    variables = {
        "WORKER_FUNCTION": {"Fn::Sub": f"{_STACK}-worker"},
        "FILES_BUCKET": {"Ref": "Files"},
    }
    return {
        "Name": MASTER_CONTAINER,
        "Image": _IMAGE,
        "Essential": True,
        "EntryPoint": ["python", "-m", "zae_limiter_lab.loadtest.orchestrator"],
        "LinuxParameters": {"InitProcessEnabled": True},  # reaps the processes of a tunnel
        "PortMappings": [{"ContainerPort": MASTER_PORT}, {"ContainerPort": WEB_PORT}],
        "Environment": [{"Name": name, "Value": value} for name, value in variables.items()],
        "LogConfiguration": {
            "LogDriver": "awslogs",
            "Options": {
                "awslogs-group": {"Ref": "MasterLogs"},
                "awslogs-region": {"Ref": "AWS::Region"},
                "awslogs-stream-prefix": "master",
            },
        },
    }


def _worker() -> dict[str, Resource]:
    return {
        "WorkerRole": _role(
            "lambda",
            _logs_statement("Worker"),
            _table_statement(),
            managed="AWSLambdaVPCAccessExecutionRole",
        ),
        "Worker": {
            "Type": "AWS::Lambda::Function",
            "Condition": "HasImage",
            "Properties": {
                "FunctionName": {"Fn::Sub": f"{_STACK}-worker"},
                "Description": "Runs users of a load test",
                "PackageType": "Image",
                "Architectures": ["x86_64"],
                "Code": {"ImageUri": _IMAGE},
                "Role": {"Fn::GetAtt": ["WorkerRole", "Arn"]},
                "MemorySize": WORKER_MEMORY_MB,
                "Timeout": WORKER_TIMEOUT_S,
                "LoggingConfig": {"LogGroup": {"Ref": "WorkerLogs"}},
                "VpcConfig": {
                    "SubnetIds": {"Ref": "SubnetIds"},
                    "SecurityGroupIds": [{"Fn::GetAtt": ["WorkerGroup", "GroupId"]}],
                },
            },
        },
    }


def _outputs() -> dict[str, Any]:
    return {
        "RepositoryUri": {"Value": {"Fn::GetAtt": ["Images", "RepositoryUri"]}},
        "FilesBucket": {"Value": {"Ref": "Files"}},
        "BuildProject": {"Value": {"Ref": "Build"}},
        "Cluster": {"Value": {"Ref": "Cluster"}},
        "MasterGroup": {"Value": {"Fn::GetAtt": ["MasterGroup", "GroupId"]}},
        "SubnetIds": {"Value": {"Fn::Join": [",", {"Ref": "SubnetIds"}]}},
        "MasterTask": {"Value": {"Ref": "Master"}, "Condition": "HasImage"},
        "WorkerFunction": {"Value": {"Ref": "Worker"}, "Condition": "HasImage"},
    }
