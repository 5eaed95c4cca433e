"""Minding that no bucket is forgotten while something is missing in it."""

from __future__ import annotations

import logging
from contextlib import suppress

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.dynamodb.expiry import expires_ms
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_writes import later_expiry
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import ConditionFailed


class Forgetting:
    """Two debts settled at once each know only half of what is owed: the sum is seen afterwards."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client

    async def put_off(
        self, key: Item, image: BucketImage, in_force: InForce, now_ms: int, deadline: Deadline
    ) -> None:
        """Move the moment on for a bucket that might be forgotten too early. Raises nothing."""
        body = later_expiry(key, expires_ms(image, in_force, now_ms)).action()
        with suppress(ConditionFailed):  # somebody else has seen to it
            try:
                await self._client.call("UpdateItem", body, deadline=deadline, repeatable=True)
            except InfrastructureError:
                logging.getLogger("zae_limiter").warning(
                    "a bucket in debt may be forgotten before it is repaid", exc_info=True
                )
