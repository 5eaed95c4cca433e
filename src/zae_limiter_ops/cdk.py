"""An AWS CDK construct that includes the CloudFormation template; needs the extra ``[cdk]``.

from aws_cdk import App, Stack
from zae_limiter_ops.cdk import RateLimiterConstruct

stack = Stack(App(), "Limits")
limiter = RateLimiterConstruct(stack, "Limiter", name="my-app")
limiter.attach("acq", role)
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.extras import needs
from zae_limiter.models.stack import StackOptions
from zae_limiter.naming import check_stack_name
from zae_limiter_ops.infra import access, names, parameters
from zae_limiter_ops.infra.packages import FunctionPackage, aggregator_package, provisioner_package
from zae_limiter_ops.infra.template import template

try:
    from aws_cdk import CfnElement, cloudformation_include
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_lambda as functions
    from aws_cdk import aws_s3_assets as assets
    from constructs import Construct
except ImportError as error:
    raise ImportError(needs("zae_limiter.cdk", "the AWS CDK", "cdk")) from error

_STACK_NAME = "AWS::StackName"


class RateLimiterConstruct(Construct):
    """The resources of a limiter inside a stack of the application.

    The names of the resources derive from ``name`` instead of the stack's name, so that
    ``Repository.open(stack=name)`` finds the table. The code of the functions is an asset of the
    stack: no upload is needed after the deployment.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, options: StackOptions | None = None
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = check_stack_name(name)
        options = options or StackOptions()
        names.check_names(name, options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "template.json")
            path.write_text(json.dumps(_with_options(_named(template(), name), options)))
            self._included = cloudformation_include.CfnInclude(
                self, "Template", template_file=str(path)
            )
            if options.enable_aggregator and options.has_functions:
                self._set_code("Aggregator", aggregator_package(), folder)
            if options.has_functions:
                self._set_code("Provisioner", provisioner_package(), folder)

    @property
    def table_name(self) -> str:
        """The name of the table, which is the name of the limiter."""
        return self.name

    def resource(self, logical_id: str) -> CfnElement:
        """Return a resource of the template, to change properties that have no parameter."""
        return self._included.get_resource(logical_id)

    def attach(self, policy: str, role: iam.IRole) -> None:
        """Attach a managed policy to a role: acq, full, read, ns-acq, ns-full or ns-read."""
        if policy not in access.LOGICAL_POLICIES:
            offered = ", ".join(access.LOGICAL_POLICIES)
            raise ValidationError("policy", policy, f"must be one of {offered}")
        resource: Any = self.resource(access.LOGICAL_POLICIES[policy][0])
        managed = iam.ManagedPolicy.from_managed_policy_arn(self, f"{policy}Policy", resource.ref)
        role.add_managed_policy(managed)

    def _set_code(self, logical_id: str, package: FunctionPackage, folder: str) -> None:
        """Replace the placeholder code of a function by an asset with the package."""
        path = Path(folder, f"{logical_id}.zip")
        path.write_bytes(package.content)
        asset = assets.Asset(self, f"{logical_id}Code", path=str(path))
        function: Any = self.resource(logical_id)
        function.code = functions.CfnFunction.CodeProperty(
            s3_bucket=asset.s3_bucket_name, s3_key=asset.s3_object_key
        )


def _with_options(body: dict[str, Any], options: StackOptions) -> dict[str, Any]:
    """Set the defaults of the template's parameters to the options."""
    for name, value in parameters.values(options).items():
        body["Parameters"][name]["Default"] = value
    return body


def _named(part: Any, name: str) -> Any:
    """Return a copy of a part of the template, with ``name`` in the place of the stack's name."""
    if part == {"Ref": _STACK_NAME}:
        return name
    if isinstance(part, dict):
        return {key: _named(value, name) for key, value in part.items()}
    if isinstance(part, list):
        return [_named(value, name) for value in part]
    return part.replace(f"${{{_STACK_NAME}}}", name) if isinstance(part, str) else part
