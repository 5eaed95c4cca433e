"""The stream processor: stores finished hours of usage, and archives expired audit events.

It runs as a Lambda function on the stream of a zae-limiter table, and is optional: without it,
clients store finished hours themselves, and expired audit events are not archived.
"""

from zae_limiter_aggregator.handler import handler
from zae_limiter_aggregator.processor import ProcessResult
from zae_limiter_aggregator.stream import ConsumptionDelta, ParsedBucketLimit, ParsedBucketRecord

__all__ = [
    "ConsumptionDelta",
    "ParsedBucketLimit",
    "ParsedBucketRecord",
    "ProcessResult",
    "handler",
]
