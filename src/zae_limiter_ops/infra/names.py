"""The names of the parts of a stack."""

from __future__ import annotations

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.stack import NAME_FORMAT_GAP, StackOptions

MAX_ROLE_NAME = 64  # IAM's limit
MAX_POLICY_NAME = 120  # IAM allows 128; the documents promise 120

ROLES = ("aggr", "prov", "app", "admin", "read")
POLICIES = ("acq", "full", "read", "ns-acq", "ns-full", "ns-read")
LEGACY_PREFIX = "ZAEL-"  # the names of stacks of older versions begin with it


def aggregator_function(stack: str) -> str:
    return f"{stack}-aggregator"


def provisioner_function(stack: str) -> str:
    return f"{stack}-limits-provisioner"


def log_group(function: str) -> str:
    return f"/aws/lambda/{function}"


def role(stack: str, component: str, name_format: str | None = None) -> str:
    """Return the name of a role in the given format."""
    return _formatted(f"{stack}-{component}", name_format, MAX_ROLE_NAME, "role_name_format")


def policy(stack: str, component: str, name_format: str | None = None) -> str:
    """Return the name of a managed policy in the given format."""
    return _formatted(f"{stack}-{component}", name_format, MAX_POLICY_NAME, "policy_name_format")


def check_names(stack: str, options: StackOptions) -> None:
    """Raise ValidationError if a name format makes the name of a role or policy too long."""
    for component in ROLES:
        role(stack, component, options.role_name_format)
    for component in POLICIES:
        policy(stack, component, options.policy_name_format)


def split_format(name_format: str | None) -> tuple[str, str]:
    """Return the text before and after the name in a name format, as template parameters."""
    before, _, after = (name_format or NAME_FORMAT_GAP).partition(NAME_FORMAT_GAP)
    return before, after


def user_name(stack: str) -> str:
    """Return the name that the user gave to a stack, without the prefix of older versions."""
    return stack.removeprefix(LEGACY_PREFIX)


def _formatted(name: str, name_format: str | None, longest: int, field: str) -> str:
    formatted = (name_format or NAME_FORMAT_GAP).replace(NAME_FORMAT_GAP, name)
    if len(formatted) > longest:
        raise ValidationError(
            field,
            name_format,
            f"makes the name {formatted!r} longer than {longest} characters; shorten it or the "
            "stack's name",
        )
    return formatted
