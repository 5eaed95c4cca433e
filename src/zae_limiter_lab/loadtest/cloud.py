"""Load-test stacks on AWS: deployed, pushed to, listed and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.stack import StackOptions
from zae_limiter.naming import MAX_STACK_LENGTH
from zae_limiter.shell_words import command_line
from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.builder import ImageBuilder
from zae_limiter_lab.loadtest.lambda_builder import ImageContext, build_context
from zae_limiter_lab.loadtest.template import template
from zae_limiter_ops._sync.infra.stack_manager import OnEvent, SyncStackManager
from zae_limiter_ops.infra import progress
from zae_limiter_ops.transport.control import Control, ControlError, Unreachable

SUFFIX = "-loadtest"
MANAGED_BY = "zae-limiter-loadtest"  # not the tag of limiters: `list` shows these alone
LOOK_EVERY_S = 2.0
# What needs CloudFormation, and what to do without it.
ON_AWS = (
    "load tests on AWS are CloudFormation stacks",
    "run a load test on this machine: zae-limiter loadtest run",
)


class NetworkPlace(NamedTuple):
    """Where master and workers run. Without route tables there is a way to DynamoDB already."""

    vpc_id: str
    subnet_ids: tuple[str, ...]
    route_table_ids: tuple[str, ...] = ()


class LoadStackInfo(NamedTuple):
    """One line of a list of load-test stacks."""

    stack_name: str
    limiter: str
    stack_status: str
    creation_time: str
    has_image: bool


class LoadStackManager(SyncStackManager):
    """A stack manager with the template and the parameters of load tests."""

    longest_name = MAX_STACK_LENGTH + len(SUFFIX)  # of a limiter whose name is as long as it may be

    def __init__(
        self,
        limiter: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        on_event: OnEvent | None = None,
    ) -> None:
        super().__init__(f"{limiter}{SUFFIX}", region, endpoint_url, on_event=on_event)
        self.limiter = limiter
        self.values: dict[str, str] = {"LimiterStack": limiter}

    def _request(self, options: StackOptions) -> dict[str, Any]:
        body = template()
        parameters = [
            {"ParameterKey": name, "ParameterValue": self.values[name]}
            if name in self.values
            else {"ParameterKey": name, "UsePreviousValue": True}
            for name in body["Parameters"]
        ]
        return {
            "TemplateBody": json.dumps(body, separators=(",", ":")),
            "Capabilities": ["CAPABILITY_IAM"],
            "Parameters": parameters,
            "Tags": [{"Key": "ManagedBy", "Value": MANAGED_BY}],
        }


class LoadTestStack:
    """One load-test stack. ``say`` is called with a line about each step."""

    def __init__(
        self,
        limiter: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        on_event: OnEvent | None = None,
        say: Callable[[str], None] = lambda _: None,
        look_s: float = LOOK_EVERY_S,
    ) -> None:
        self.limiter = limiter
        self.manager = LoadStackManager(limiter, region, endpoint_url, on_event=on_event)
        self.control: Control = self.manager.control
        self.look_s = look_s
        self._say = say

    @property
    def name(self) -> str:
        return self.manager.name

    def close(self) -> None:
        self.manager.close()

    # --- life cycle

    def deploy(
        self,
        folder: Path,
        *,
        place: NetworkPlace | None = None,
        permission_boundary: str | None = None,
    ) -> str:
        """Create or update the stack and build its image; return the URI of the image.

        An update keeps the network and the permission boundary where none is given.
        """
        self.control.require_stacks(*ON_AWS)
        context = build_context(folder)
        status = self.manager.settled()
        is_new = status is None or status in progress.FAILED_CREATIONS
        values = {"LimiterStack": self.limiter}
        if is_new:
            values["ImageUri"] = ""
        if is_new or permission_boundary is not None:
            values["PermissionBoundary"] = permission_boundary or ""
        if is_new or place is not None:
            place = place or self._default_place()
            values["VpcId"] = place.vpc_id
            values["SubnetIds"] = ",".join(place.subnet_ids)
            values["RouteTableIds"] = ",".join(place.route_table_ids)
        self.manager.values = values
        self._say(f"stack {self.name}: {self.manager.deploy(StackOptions())}")
        return self._upload(context)

    def push(self, folder: Path) -> str:
        """Build the image of a folder for master and workers; return its URI."""
        self.require(with_image=False)
        return self._upload(build_context(folder))

    def _upload(self, context: ImageContext) -> str:
        builder = ImageBuilder(self.control, self.manager.outputs(), self._say, look_s=self.look_s)
        uri = builder.build(context)
        self.manager.values = {"ImageUri": uri}
        self._say(f"stack {self.name} with that image: {self.manager.deploy(StackOptions())}")
        return uri

    def delete(self) -> bool:
        """Delete the stack with its images, files and reports; False if there was none."""
        self.control.require_stacks(*ON_AWS)
        bucket = self.manager.outputs().get("FilesBucket")
        if bucket is not None:
            self._empty(bucket)
        return self.manager.delete()

    def exists(self, *, must_answer: bool = False) -> bool:
        """Return whether a test can run here; False also if AWS cannot be asked.

        With ``must_answer``, an endpoint that does not answer is an error.
        """
        try:
            return bool(self.image_uri())
        except Unreachable:
            if must_answer:
                raise
            return False
        except ZAELimiterError:  # no region, no credentials, or a server without CloudFormation
            return False

    def require(self, *, with_image: bool = True) -> None:
        """Raise LoadTestError unless the stack is there, and has an image."""
        image = self.image_uri()
        if image is None or (with_image and not image):
            raise LoadTestError(
                f"there is no load-test stack for {self.limiter!r}; deploy it first: "
                f"{command_line('loadtest', 'deploy', options=('--name', self.limiter))}"
            )

    def image_uri(self) -> str | None:
        """Return the image that master and workers run; "" before one is built, None: no stack."""
        self.control.require_stacks(*ON_AWS)
        stack = self.manager.describe()
        if stack is None:
            return None
        values = {
            each["ParameterKey"]: each.get("ParameterValue", "")
            for each in stack.get("Parameters", ())
        }
        return str(values.get("ImageUri", ""))

    # --- AWS

    def _default_place(self) -> NetworkPlace:
        """Return the default VPC with its subnets, and the route tables without a gateway."""
        call = self.control.call
        is_default = [{"Name": "is-default", "Values": ["true"]}]
        vpcs = call("ec2", "describe_vpcs", Filters=is_default)["Vpcs"]
        if not vpcs:
            raise LoadTestError("there is no default VPC; give --vpc-id and --subnet-ids")
        vpc_id = vpcs[0]["VpcId"]
        inside = [{"Name": "vpc-id", "Values": [vpc_id]}]
        subnets = call("ec2", "describe_subnets", Filters=inside)["Subnets"]
        return NetworkPlace(
            vpc_id,
            tuple(sorted(subnet["SubnetId"] for subnet in subnets)),
            tuple(self._route_tables(vpc_id)),
        )

    def _route_tables(self, vpc_id: str) -> Iterator[str]:
        """Yield the route tables of a VPC that has no gateway to DynamoDB."""
        inside = [{"Name": "vpc-id", "Values": [vpc_id]}]
        call = self.control.call
        endpoints = call("ec2", "describe_vpc_endpoints", Filters=inside)["VpcEndpoints"]
        if not any(each["ServiceName"].endswith(".dynamodb") for each in endpoints):
            tables = call("ec2", "describe_route_tables", Filters=inside)["RouteTables"]
            yield from sorted(table["RouteTableId"] for table in tables)

    def _empty(self, bucket: str) -> None:
        while True:
            try:
                page = self.control.call("s3", "list_objects_v2", Bucket=bucket)
            except ControlError as error:
                if error.code == "NoSuchBucket":
                    return
                raise
            keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
            if not keys:
                return
            answer = self.control.call(
                "s3", "delete_objects", Bucket=bucket, Delete={"Objects": keys, "Quiet": True}
            )
            for failed in answer.get("Errors", ()):  # S3 answers with 200 all the same
                raise LoadTestError(
                    f"{failed['Key']} of bucket {bucket} cannot be deleted: {failed['Code']}"
                )


def list_load_stacks(
    region: str | None = None, endpoint_url: str | None = None
) -> list[LoadStackInfo]:
    """Return the load-test stacks of a region by name."""
    control = Control(region, endpoint_url)
    try:
        control.require_stacks(*ON_AWS)
        pages = control.pages("cloudformation", "describe_stacks")
    finally:
        control.close()
    stacks = [stack for page in pages for stack in page["Stacks"]]
    return sorted(_info(stack) for stack in stacks if _is_load_stack(stack))


def _is_load_stack(stack: dict[str, Any]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
    return tags.get("ManagedBy") == MANAGED_BY and stack["StackStatus"] != "DELETE_COMPLETE"


def _info(stack: dict[str, Any]) -> LoadStackInfo:
    values = {each["ParameterKey"]: each.get("ParameterValue") for each in stack["Parameters"]}
    return LoadStackInfo(
        stack["StackName"],
        values.get("LimiterStack") or "",
        stack["StackStatus"],
        stack["CreationTime"].isoformat(),
        bool(values.get("ImageUri")),
    )
