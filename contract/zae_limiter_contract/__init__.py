"""The contract suite: tests that every engine passes.

To check your own engine, define how it is opened, and declare its capabilities::

    import pytest
    from zae_limiter import BackendCapabilities, Repository
    from zae_limiter_contract import EngineContract, EngineSpec

    CAPABILITIES = BackendCapabilities(
        "mine", durable=True, shared_between_processes=True, atomic_cascade=True, usage_history=True
    )

    class MySpec(EngineSpec):
        async def open(self, namespace="default", *, clock, config_cache_ttl=60,
                       request_timeout=10, on_unavailable=None):
            builder = Repository.builder().namespace(namespace).clock(clock)
            builder.config_cache_ttl(config_cache_ttl).on_unavailable(on_unavailable)
            engine = MyEngine(self.url, request_timeout)
            return await builder.register_missing_namespace().over(engine)

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def engine_spec(self, tmp_path):
            return MySpec(f"{tmp_path}/store", CAPABILITIES)

``SyncEngineContract`` and ``SyncEngineSpec`` do the same for the sync tree. If ``Repository.open``
opens the engine by a URL, the spec needs no ``open`` of its own. Override ``EngineSpec.outage`` to
test outages. pytest-asyncio must run in auto mode, and the marker ``slow``, which long tests have,
must be registered. Each module of ``_async`` has one class, which can be used alone.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter_contract._async.engine import EngineContract
    from zae_limiter_contract._async.spec import EngineSpec
    from zae_limiter_contract._sync.engine import EngineContract as SyncEngineContract
    from zae_limiter_contract._sync.spec import EngineSpec as SyncEngineSpec

__all__ = ["EngineContract", "EngineSpec", "SyncEngineContract", "SyncEngineSpec"]

if "pytest" in sys.modules:  # a child process of a test has not imported it
    # This comes before the import of the groups, so that their asserts show the compared values.
    sys.modules["pytest"].register_assert_rewrite(
        *(
            f"{__name__}.{part}"
            for part in ("_async", "_sync", "cancellation", "interrupts", "interrupted_changes")
        )
    )

_HOMES = {"EngineContract": "engine", "EngineSpec": "spec"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that a child process that needs only a spec starts fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    plain = name.removeprefix("Sync")
    tree = "_sync" if name.startswith("Sync") else "_async"
    return getattr(importlib.import_module(f"{__name__}.{tree}.{_HOMES[plain]}"), plain)
