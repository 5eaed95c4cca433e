"""S3 buckets in templates."""

from __future__ import annotations

from typing import Any


def private_bucket() -> dict[str, Any]:
    """Return the properties of a bucket that is encrypted and never public."""
    return {
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [
                {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
            ]
        },
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        },
    }
