"""The hosts of AWS's services by the rules that botocore's clients follow."""

from __future__ import annotations

import functools
from typing import Any

from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader, create_loader


def rules_of(
    service: str, region: str, use_fips: bool, use_dual_stack: bool = False, **parameters: Any
) -> str:
    """Return the endpoint of a service."""
    endpoint = _provider(service).resolve_endpoint(
        Region=region, UseFIPS=use_fips, UseDualStack=use_dual_stack, **parameters
    )
    return str(endpoint.url)


@functools.cache
def _provider(service: str) -> EndpointProvider:
    loader: Loader = create_loader()
    rules = loader.load_service_model(service, "endpoint-rule-set-1")
    return EndpointProvider(rules, loader.load_data("partitions"))
