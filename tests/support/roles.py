"""What every public method is for."""

from __future__ import annotations

METHODS = {
    "acq": frozenset(
        {
            *("acquire", "adjust", "consume", "release", "settle", "close"),
            *("available", "check_availability", "is_available", "time_until_available", "pause"),
        }
    ),
    "read": frozenset(
        {
            *("get_audit_events", "get_bucket", "get_buckets", "get_children", "get_entity"),
            *(
                "get_bucket_in_force",
                "get_last_use",
                "get_limits",
                "get_namespace",
                "get_provisioner_state",
            ),
            *("get_resource_buckets", "get_resource_capacity", "get_resource_defaults"),
            *("get_system_defaults", "get_top_usage", "get_usage_snapshots", "get_usage_summary"),
            *("get_version_record", "list_buckets", "list_entities", "list_namespaces"),
            *("list_entities_with_custom_limits", "list_orphan_namespaces", "list_resources"),
            *("list_resources_with_defaults", "list_resources_with_entity_configs"),
            *("list_bucket_entries", "ping", "read_buckets", "resolve_limits"),
            *("get_mode", "resolve_mode", "get_limits_in_force", "superseded_limits"),
        }
    ),
    "full": frozenset(
        {
            *("create_entity", "delete_entity", "delete_limits", "delete_resource_defaults"),
            *("delete_system_defaults", "provisioner", "put_provisioner_state", "reset_bucket"),
            *("set_limits", "set_parent", "set_resource_defaults", "set_system_defaults"),
            *("ensure_entity", "set_mode", "top_up", "update_entity"),
        }
    ),
    # Namespaces and the version record belong to the table, not to a tenant.
    "administrator": frozenset(
        {
            *("register_namespace", "register_namespaces", "delete_namespace"),
            *("recover_namespace", "purge_namespace", "set_version_record"),
        }
    ),
    # Reads the registry; creates the table and the namespace where it was asked to.
    "opening": frozenset({"build", "open", "namespace"}),
}
ALL_METHODS = frozenset().union(*METHODS.values())


def role_of(method: str) -> str:
    """Return the role that calls a method."""
    return next(role for role, methods in METHODS.items() if method in methods)
