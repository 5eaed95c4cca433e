"""The domain of AWS's services, which differs between partitions (such as China)."""

from __future__ import annotations

import os

# The template passes AWS::URLSuffix to both functions under this name.
URL_SUFFIX = "URL_SUFFIX"


def url_suffix(region: str) -> str:
    """Return the domain of services in a region: the template's value, else a guess by region."""
    given = os.environ.get(URL_SUFFIX)
    return given or ("amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com")


def dynamodb_endpoint() -> str | None:
    """Return the endpoint of DynamoDB for a function; None if the environment names another."""
    region, suffix = os.environ.get("AWS_REGION"), os.environ.get(URL_SUFFIX)
    is_named = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") or os.environ.get("AWS_ENDPOINT_URL")
    if not region or not suffix or is_named:
        return None
    return f"https://dynamodb.{region}.{suffix}"
