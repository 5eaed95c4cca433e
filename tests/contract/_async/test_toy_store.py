"""The contract suite for the engine over a store of items that is a dictionary."""

import pytest
from zae_limiter_contract._async.engine import EngineContract
from zae_limiter_contract._async.spec import EngineSpec

from tests.contract._async.toy_store import TOY, toy_engine
from zae_limiter._async.builder import RepositoryBuilder
from zae_limiter.settings import Settings


class ToySpec(EngineSpec):
    """A dictionary with the name of the test."""

    async def open(
        self,
        namespace="default",
        *,
        clock,
        config_cache_ttl=60,
        request_timeout=10,
        on_unavailable=None,
    ):
        engine = toy_engine(self.url, Settings(clock=clock, request_timeout=request_timeout))
        if self.usage_retention_days is not None:
            engine.keep_usage(self.usage_retention_days)
        builder = RepositoryBuilder().namespace(namespace).clock(clock)
        builder.config_cache_ttl(config_cache_ttl).on_unavailable(on_unavailable)
        builder.snapshot_windows(self.snapshot_windows)
        return await builder.register_missing_namespace().over(engine)


# sync: @pytest.mark.slow
class TestToyStore(EngineContract):
    @pytest.fixture
    def engine_spec(self, unique_name):
        return ToySpec(unique_name, TOY)
