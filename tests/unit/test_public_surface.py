"""The names and signatures that users write against."""

import inspect
import json
import subprocess
import sys

import pytest

import zae_limiter
from zae_limiter import (
    AuditAction,
    Lease,
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    bucket,
    hooks,
    models,
)
from zae_limiter.models.config import KEEP

EXPORTS = [
    "__version__",
    "RateLimiter",
    "Repository",
    "RepositoryBuilder",
    "RepositoryProtocol",
    "Lease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "SyncLease",
    "SyncConfigCache",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimitedBy",
    "BucketState",
    "Entity",
    "EntityCapacity",
    "ResourceCapacity",
    "UsageSnapshot",
    "UsageSummary",
    "UsageRanking",
    "EntityUsage",
    "AuditEvent",
    "AuditAction",
    "BackendCapabilities",
    "CacheStats",
    "ConfigSource",
    "OnUnavailable",
    "Availability",
    "ZAELimiterError",
    "RateLimitError",
    "RateLimitExceeded",
    "LeaseExpiredError",
    "InfrastructureError",
    "RateLimiterUnavailable",
    "StackOperationError",
    "StackCreationError",
    "StackAlreadyExistsError",
    "InfrastructureNotFoundError",
    "ForeignTableError",
    "NamespaceNotFoundError",
    "NamespaceStateError",
    "PermissionDenied",
    "EntityError",
    "EntityNotFoundError",
    "EntityExistsError",
    "LimitsChangedError",
    "VersionError",
    "VersionMismatchError",
    "IncompatibleSchemaError",
    "ValidationError",
    "InvalidIdentifierError",
    "InvalidNameError",
]


@pytest.mark.parametrize("name", EXPORTS)
def test_a_documented_name_is_exported(name):
    assert name in zae_limiter.__all__
    assert getattr(zae_limiter, name) is not None


def test_everything_that_is_listed_can_be_imported():
    for name in zae_limiter.__all__:
        assert getattr(zae_limiter, name) is not None
    assert sorted(zae_limiter.__all__) == list(zae_limiter.__all__)
    assert set(zae_limiter.__all__) <= set(dir(zae_limiter))


def test_other_names_are_missing_as_usual():
    with pytest.raises(AttributeError, match="nothing_like_this"):
        zae_limiter.nothing_like_this  # noqa: B018 - the access is the test
    assert not hasattr(zae_limiter, "_MODULES_")


def test_every_model_is_found_by_its_package():
    for name in models.__all__:
        assert getattr(models, name).__name__ == name
    assert set(models.__all__) <= set(dir(models))
    with pytest.raises(AttributeError, match="nothing_like_this"):
        models.nothing_like_this  # noqa: B018 - the access is the test


def loaded_after(code):
    script = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


HEAVY = {
    "aiohttp",
    "aiobotocore",
    "asyncio",
    "boto3",
    "botocore",
    "click",
    "concurrent.futures",
    "http.client",
    "rich",
    "sqlite3",
    "ssl",
    "yaml",
}


def test_the_bare_import_loads_next_to_nothing():
    loaded = loaded_after("import zae_limiter")
    assert not HEAVY & loaded
    assert {name for name in loaded if name.startswith("zae_limiter")} == {
        "zae_limiter",
        "zae_limiter._version",
    }


def test_models_and_errors_load_no_engine():
    loaded = loaded_after("from zae_limiter import Limit, RateLimitExceeded, Entity")
    assert not HEAVY & loaded


def test_the_limiter_loads_no_reports_before_they_are_asked_for():
    """Importing it takes 60 ms, each of these would add 2 to 5."""
    loaded = loaded_after("from zae_limiter import RateLimiter, Repository, Limit")
    models = ("audit", "backend", "bucket", "entity", "status", "usage")
    late = {f"zae_limiter.models.{name}" for name in models}
    late |= {
        "zae_limiter.usage.report",
        "zae_limiter.usage.ranking",
        "zae_limiter.admission.statuses",
    }
    assert not (late | {"datetime", "logging", "secrets"}) & loaded


def test_the_limiter_loads_no_client_of_a_store_that_is_not_used():
    loaded = loaded_after(
        "import zae_limiter; zae_limiter.SyncRateLimiter; "
        "zae_limiter.SyncRepository.open(url='memory://').close()"
    )
    assert not {"aiohttp", "aiobotocore", "boto3", "botocore", "click", "rich"} & loaded
    assert "sqlite3" not in loaded


# --- signatures


def parameters(call):
    """Name to default; names after a star are marked by it."""
    found = {}
    for name, each in inspect.signature(call).parameters.items():
        if name == "self":
            continue
        marked = f"*{name}" if each.kind is each.KEYWORD_ONLY else name
        found[marked] = each.default
    return found


REQUIRED = inspect.Parameter.empty

LIMITER = {
    "acquire": {
        "entity_id": REQUIRED,
        "resource": REQUIRED,
        "consume": REQUIRED,
        "limits": None,
        "use_stored_limits": False,
        "on_unavailable": None,
        "*on_error": "refund",
        "*mode": None,
    },
    "available": {"entity_id": REQUIRED, "resource": REQUIRED, "limits": None},
    "time_until_available": {
        "entity_id": REQUIRED,
        "resource": REQUIRED,
        "needed": REQUIRED,
        "limits": None,
    },
    "check_availability": {
        "entity_id": REQUIRED,
        "resource": REQUIRED,
        "needed": None,
        "limits": None,
    },
    "is_available": {"timeout": 1.0},
    "get_resource_capacity": {
        "resource": REQUIRED,
        "limit_name": REQUIRED,
        "parents_only": False,
    },
    "update_entity": {"entity_id": REQUIRED, "*limits": None},
}
HISTORY = {
    "get_audit_events": {"entity_id": None, "limit": 100, "start_event_id": None},
    "get_usage_snapshots": {
        "entity_id": None,
        "resource": None,
        "window_type": None,
        "start_time": None,
        "end_time": None,
        "limit": 100,
        "next_key": None,
    },
    "get_usage_summary": {
        "entity_id": None,
        "resource": None,
        "window_type": None,
        "start_time": None,
        "end_time": None,
    },
    "get_top_usage": {"by": None, "last": "24h", "*resource": None, "*limit": 10},
}
# On the repository and, under the same names, on the limiter.
NEW_ENTITY = {
    "entity_id": REQUIRED,
    "name": None,
    "parent_id": None,
    "cascade": False,
    "metadata": None,
    "principal": None,
}
SHARED = {
    "create_entity": NEW_ENTITY,
    "ensure_entity": NEW_ENTITY,
    "get_entity": {"entity_id": REQUIRED},
    "delete_entity": {"entity_id": REQUIRED, "principal": None},
    "get_children": {"parent_id": REQUIRED},
    "set_parent": {
        "entity_id": REQUIRED,
        "parent_id": REQUIRED,
        "cascade": True,
        "principal": None,
    },
    "set_limits": {
        "entity_id": REQUIRED,
        "limits": REQUIRED,
        "resource": "_default_",
        "principal": None,
        "*if_missing": False,
    },
    "get_limits": {"entity_id": REQUIRED, "resource": "_default_"},
    "delete_limits": {"entity_id": REQUIRED, "resource": "_default_", "principal": None},
    "set_resource_defaults": {
        "resource": REQUIRED,
        "limits": REQUIRED,
        "principal": None,
        "*if_missing": False,
    },
    "get_resource_defaults": {"resource": REQUIRED},
    "delete_resource_defaults": {"resource": REQUIRED, "principal": None},
    "list_resources_with_defaults": {},
    "set_system_defaults": {
        "limits": REQUIRED,
        "on_unavailable": KEEP,
        "principal": None,
        "*if_missing": False,
    },
    "get_system_defaults": {},
    "delete_system_defaults": {"principal": None},
    "list_entities_with_custom_limits": {"resource": REQUIRED, "limit": None, "cursor": None},
    "list_resources_with_entity_configs": {},
    "resolve_limits": {"entity_id": REQUIRED, "resource": REQUIRED},
    "pause": {"entity_id": REQUIRED, "resource": REQUIRED, "seconds": REQUIRED, "principal": None},
    **HISTORY,
}
REPOSITORY = {
    **SHARED,
    "invalidate_config_cache": {},
    "get_cache_stats": {},
    "get_bucket": {"entity_id": REQUIRED, "resource": REQUIRED, "limit_name": REQUIRED},
    "get_buckets": {"entity_id": REQUIRED, "resource": None},
    "get_resource_buckets": {"resource": REQUIRED, "limit_name": None},
    "reset_bucket": {"entity_id": REQUIRED, "resource": REQUIRED, "principal": None},
    "top_up": {"entity_id": REQUIRED, "resource": REQUIRED, "amounts": REQUIRED, "principal": None},
    "register_namespace": {"name": REQUIRED},
    "register_namespaces": {"names": REQUIRED},
    "list_namespaces": {},
    "get_namespace": {"name": REQUIRED},
    "delete_namespace": {"name": REQUIRED},
    "recover_namespace": {"namespace_id": REQUIRED},
    "list_orphan_namespaces": {},
    "purge_namespace": {"namespace_id": REQUIRED},
    "namespace": {
        "name": REQUIRED,
        "*on_unavailable": None,
        "*bucket_ttl_multiplier": None,
    },
    "get_version_record": {},
    "set_version_record": {"record": REQUIRED},
    "get_provisioner_state": {},
    "put_provisioner_state": {"state": REQUIRED},
    "ensure_infrastructure": {},
    "delete_table": {},
    "ping": {},
    "close": {},
}
OPEN = {
    "namespace": None,
    "*url": None,
    "*stack": None,
    "*region": None,
    "*endpoint_url": None,
    "*config_cache_ttl": 60,
    "*auto_update": True,
    "*provision": "stack",
}


def check(call, expected):
    """What is documented comes first and as documented; what is added has a default."""
    found = parameters(call)
    positional = [name for name in found if not name.startswith("*")]
    wanted = [name for name in expected if not name.startswith("*")]
    assert positional[: len(wanted)] == wanted
    assert {name: found[name] for name in expected} == expected
    added = found.keys() - expected.keys() - {"deprecated"}
    assert not [name for name in added if found[name] is REQUIRED]


@pytest.mark.parametrize("limiter", [RateLimiter, SyncRateLimiter])
@pytest.mark.parametrize("method", [*LIMITER, *SHARED])
def test_methods_of_the_limiter(limiter, method):
    check(getattr(limiter, method), {**SHARED, **LIMITER}[method])


@pytest.mark.parametrize("repository", [Repository, SyncRepository])
@pytest.mark.parametrize("method", list(REPOSITORY))
def test_methods_of_the_repository(repository, method):
    check(getattr(repository, method), REPOSITORY[method])


@pytest.mark.parametrize("repository", [Repository, SyncRepository])
def test_opening_a_repository(repository):
    check(repository.open, OPEN)
    assert ("*parallel_mode" in parameters(repository.open)) == (repository is SyncRepository)


@pytest.mark.parametrize("limiter", [RateLimiter, SyncRateLimiter])
def test_making_a_limiter(limiter):
    expected = {"repository": None, "*url": None, "*speculative_writes": True, "*clock": None}
    check(limiter, {**expected, "*mode": "enforce", "*hooks": None})


@pytest.mark.parametrize("lease", [Lease, SyncLease])
@pytest.mark.parametrize("method", ["adjust", "consume", "release"])
def test_methods_of_a_lease_take_any_limit(lease, method):
    kinds = [
        each.kind
        for name, each in inspect.signature(getattr(lease, method)).parameters.items()
        if name != "self"
    ]
    assert kinds == [
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ]
    assert isinstance(lease.consumed, property)


@pytest.mark.parametrize("lease", [Lease, SyncLease])
def test_a_lease_settles_and_says_what_is_left(lease):
    assert parameters(lease.settle)["*now"] is False
    assert parameters(lease.headers) == {"style": "ietf"}
    assert parameters(zae_limiter.RateLimitExceeded.headers) == {"style": "ietf"}
    for name in ("remaining", "statuses", "shadowed"):
        assert isinstance(getattr(lease, name), property)


def test_hooks_and_their_events_can_be_imported():
    for name in ("Hooks", "AcquireEvent", "RejectEvent", "SettleEvent", "OutageEvent"):
        assert getattr(hooks, name).__doc__


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            bucket.refill_bucket,
            (
                "tokens_milli last_refill_ms now_ms capacity_milli refill_amount_milli "
                "refill_period_ms"
            ),
        ),
        (bucket.try_consume, "state requested now_ms"),
        (bucket.force_consume, "state amount now_ms"),
        (bucket.calculate_retry_after, "deficit_milli refill_amount_milli refill_period_ms"),
        (bucket.calculate_available, "state now_ms"),
        (bucket.would_refill_satisfy, "state requested now_ms"),
        (
            Limit,
            (
                "name capacity refill_amount refill_period_seconds lease_ttl window soft hold_ttl "
                "thresholds currency"
            ),
        ),
        (Limit.concurrent, "name n lease_ttl *soft"),
        (Limit.per_minute, "name rate burst *soft"),
        (Limit.custom, "name capacity refill_amount refill_period_seconds *soft"),
        (
            Limit.quota,
            "name amount *per *every *zone *on *at *after_first_use *soft *hold_ttl *thresholds",
        ),
        (
            Limit.budget,
            (
                "name amount *currency *per *every *zone *on *at *after_first_use *soft *hold_ttl "
                "*thresholds"
            ),
        ),
    ],
)
def test_documented_functions(call, names):
    assert list(parameters(call)) == names.split()


def test_the_error_of_an_outage_takes_what_is_known_about_it():
    assert parameters(RateLimiterUnavailable) == {
        "message": REQUIRED,
        "*cause": None,
        "*stack_name": None,
        "*entity_id": None,
        "*resource": None,
    }


def test_documented_audit_actions():
    documented = {"entity_created", "entity_deleted", "limits_set", "limits_deleted"}
    assert documented <= {action.value for action in AuditAction}


BUILDER = [
    "namespace",
    "stack",
    "region",
    "endpoint_url",
    "url",
    "config_cache_ttl",
    "auto_update",
    "bucket_ttl_multiplier",
    "on_unavailable",
    "usage_retention_days",
    "snapshot_windows",
    "audit_retention_days",
]


@pytest.mark.parametrize("repository", [Repository, SyncRepository])
@pytest.mark.parametrize("method", BUILDER)
def test_the_builder_is_fluent(repository, method):
    values = {
        "config_cache_ttl": 30,
        "auto_update": False,
        "bucket_ttl_multiplier": 3,
        "on_unavailable": "allow",
        "usage_retention_days": 30,
        "snapshot_windows": "hourly,daily",
        "audit_retention_days": 30,
    }
    builder = repository.builder()
    assert getattr(builder, method)(values.get(method, "x")) is builder


@pytest.mark.parametrize(
    ("sync", "source"),
    [(SyncRepository, Repository), (SyncRateLimiter, RateLimiter), (SyncLease, Lease)],
)
def test_both_forms_have_the_same_methods(sync, source):
    def public(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(sync) == public(source)


def test_the_names_for_manifests_are_documented():
    from zae_limiter_ops import manifest

    for name in manifest.__all__:
        text = getattr(manifest, name).__doc__ or ""
        assert text, name
        assert not text.startswith(f"{name}("), f"{name} has the docstring that dataclasses make"


def test_users_of_load_tests_can_be_imported():
    """In a process of its own: Locust patches the one that imports it."""
    script = (
        "import inspect, json\n"
        "from zae_limiter_lab.locust import RateLimiterSession, RateLimiterUser\n"
        "names = list(inspect.signature(RateLimiterSession.acquire).parameters)\n"
        "assert all(each.__doc__ for each in (RateLimiterSession, RateLimiterUser))\n"
        "print(json.dumps([names, RateLimiterUser.stack_name, RateLimiterUser.url]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    names, *places = json.loads(done.stdout)
    assert names == ["self", "entity_id", "resource", "consume", "limits", "name", "options"]
    assert places == [None, None]
