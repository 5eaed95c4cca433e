"""The provisioner function in the template, and a template that applies a manifest with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.aggregator import Resource, function, log_group

if TYPE_CHECKING:  # infra and manifest are independent of each other
    from zae_limiter_ops.manifest.declarations import LimitsManifest

# Lambda's maximum: a large manifest takes minutes, and only used time costs money.
TIMEOUT_S = 900
# CloudFormation must wait longer than the function, which answers before its timeout.
SERVICE_TIMEOUT_S = TIMEOUT_S + 60
RESOURCE_TYPE = "Custom::ZaeLimiterLimits"
ARN_OUTPUT = "ProvisionerArn"
MAX_TEMPLATE_BYTES = 51_200  # CloudFormation's limit for a template inside the request

_STACK = "${AWS::StackName}"


def resources() -> dict[str, Resource]:
    name = names.provisioner_function(_STACK)
    return {
        "ProvisionerLogGroup": log_group(name, "CanRun"),
        "Provisioner": function(
            name,
            "Applies manifests of limits",
            condition="CanRun",
            prefix="Provisioner",
            properties={"Timeout": TIMEOUT_S},
        ),
    }


def limits_template(stack: str, manifest: LimitsManifest) -> dict[str, Any]:
    """Return a template with one resource: the limits of a manifest.

    The provisioner of the limiter's stack applies the manifest. The template finds the function by
    the ARN that the stack exports.
    """
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Limits of {stack}, applied by its provisioner",
        "Resources": {
            "Limits": {
                "Type": RESOURCE_TYPE,
                "UpdateReplacePolicy": "Delete",
                "DeletionPolicy": "Delete",
                "Properties": {
                    "ServiceToken": {"Fn::ImportValue": f"{stack}-{ARN_OUTPUT}"},
                    "ServiceTimeout": SERVICE_TIMEOUT_S,
                    "Manifest": manifest.to_dict(),
                },
            }
        },
    }
