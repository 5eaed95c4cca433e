"""An in-memory model of a DynamoDB table, and of clients, networks and time around it.

It runs histories with faults thousands of times faster than a server, and each of them again from
its seed. ``tests/integration/dynamodb/test_table_model.py`` compares it with the local server.
"""

from sim.virtual_time import VirtualTime, virtual_time
from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.table import Change, ModelTable, Refusal

__all__ = [
    "Change",
    "ModelClient",
    "ModelTable",
    "Network",
    "Refusal",
    "VirtualTime",
    "virtual_time",
]
