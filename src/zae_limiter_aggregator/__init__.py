"""The aggregator: a Lambda function that stores finished hours and archives expired audit events.

The function reads the stream of a zae-limiter table. The aggregator is optional: without the
function, clients store finished hours themselves, and expired audit events are not archived.
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
