"""The hosts of AWS's services for a function, which differ between partitions (such as China)."""

from __future__ import annotations

import os

# The template passes AWS::URLSuffix to both functions under this name.
URL_SUFFIX = "URL_SUFFIX"
# As AWS's libraries read it: the endpoints whose encryption meets FIPS 140.
USE_FIPS = "AWS_USE_FIPS_ENDPOINT"
_GOVCLOUD = "us-gov-"  # begins the regions whose only endpoints of DynamoDB meet FIPS 140


def uses_fips() -> bool:
    return os.environ.get(USE_FIPS, "").lower() == "true"


def s3_host(bucket: str, region: str) -> str:
    """Return the host of a bucket."""
    return f"{bucket}.{'s3-fips' if uses_fips() else 's3'}.{region}.{url_suffix(region)}"


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
    has_own_host = uses_fips() and not region.startswith(_GOVCLOUD)
    return f"https://{'dynamodb-fips' if has_own_host else 'dynamodb'}.{region}.{suffix}"
