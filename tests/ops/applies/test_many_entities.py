"""A manifest of 10,000 entities: bounds of CPU time, and of memory of this process."""

import os
import resource
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.dynamodb import DynamoServer, shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table
from zae_limiter_ops.manifest.reading import read_files

ENTITIES = 10_000
# CPU time, so that other programs of the machine do not matter; measured were 3 s for a plan that
# begins with the YAML, 3 s for an apply on SQLite and 5 s on DynamoDB.
PLAN_S = 5.0
APPLY_S = {"sqlite": 6.0, "dynamodb": 12.0}
MEMORY_KB = 200_000  # what an apply may add
# Of this process and the server, which takes longer for each write the more the stream of its table
# holds; measured were 37 s on a busy machine.
WITH_STREAM_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def yaml_text(rate):
    entities = (
        f"  user-{number:06}:\n    resources:\n      gpt-4:\n        limits:\n"
        f"          rpm: {{capacity: {rate}}}\n          tpm: 1000/min:{rate * 1000}\n"
        for number in range(ENTITIES)
    )
    return "entities:\n" + "".join(entities)


@pytest.fixture(params=APPLY_S)
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/limits.db"
        return
    with temporary_table() as table:
        yield store_url(table, shared_endpoint())


def test_plan_and_apply_stay_within_bounds(url):
    most_s = APPLY_S[url.partition(":")[0]]
    builder = SyncRepository.builder().url(url).request_timeout(30).register_missing_namespace()
    with builder.build() as repository:
        provisioner = repository.provisioner()
        for rate in (5, 7):
            began_s = time.process_time()
            manifest = read_files([("limits.yaml", yaml_text(rate))])
            assert len(provisioner.plan(manifest).changes) == ENTITIES
            assert time.process_time() - began_s < PLAN_S
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began_s = time.process_time()
            assert len(provisioner.apply(manifest).changes) == ENTITIES
            assert time.process_time() - began_s < most_s
            added_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
            assert added_kb < MEMORY_KB
        assert provisioner.plan(manifest).is_empty


def test_an_apply_to_a_table_with_a_stream_takes_less_than_a_minute():
    manifest = read_files([("limits.yaml", yaml_text(5))])
    with DynamoServer() as server:
        with closing(DynamoClient("many-entities", endpoint_url=server.url)) as client:
            make_table(client)
        url = store_url("many-entities", server.url)
        builder = SyncRepository.builder().url(url).request_timeout(30)
        with builder.register_missing_namespace().build() as repository:
            began_s = time.process_time() + cpu_s(server.pid)
            assert repository.provisioner().apply(manifest).created == ENTITIES
            assert time.process_time() + cpu_s(server.pid) - began_s < WITH_STREAM_S


def cpu_s(pid):
    """CPU time of another process: fields 14 and 15 of its status, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
