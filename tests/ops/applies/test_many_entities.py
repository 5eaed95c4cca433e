"""A manifest of 10,000 entities: bounds of CPU time, and of memory of this process."""

import resource
import time

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import SyncRepository
from zae_limiter_ops.manifest.reading import read_files

ENTITIES = 10_000
# CPU time, so that other programs of the machine do not matter; measured were 3 s for a plan that
# begins with the YAML, 3 s for an apply on SQLite and 5 s on DynamoDB.
PLAN_S = 5.0
APPLY_S = {"sqlite": 6.0, "dynamodb": 12.0}
MEMORY_KB = 200_000  # what an apply may add

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
