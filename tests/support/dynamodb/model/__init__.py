"""An in-memory model of a DynamoDB table, and of clients, networks and time around it.

It runs histories with faults thousands of times faster than a server, and each of them again from
its seed. ``tests/integration/dynamodb/test_table_model.py`` compares it with the local server.
"""

from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.table import Change, ModelTable, Refusal
from tests.support.dynamodb.model.time import VirtualTime, virtual_time

__all__ = [
    "Change",
    "ModelClient",
    "ModelTable",
    "Network",
    "Refusal",
    "VirtualTime",
    "virtual_time",
]
