"""The provisioner in the template, and the template of a manifest that calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.aggregator import Resource, function, log_group

if TYPE_CHECKING:
    from zae_limiter_ops.manifest.declarations import LimitsManifest

# Lambda's maximum: a large manifest takes minutes, and a function that has ended costs nothing.
TIMEOUT_S = 900
# CloudFormation's own patience: longer than the function's, which always answers before it ends.
SERVICE_TIMEOUT_S = TIMEOUT_S + 60
RESOURCE_TYPE = "Custom::ZaeLimiterLimits"
ARN_OUTPUT = "ProvisionerArn"
MAX_TEMPLATE_BYTES = 51_200  # of a template that is sent with the request, not through S3

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
    """Return a template whose one resource is the limits of a manifest.

    The function of the limiter's stack applies it: it is found by what that stack exports.
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
