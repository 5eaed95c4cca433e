"""Every scenario sends the requests that are kept for it, in both trees, to the byte."""

import pytest

from tests.golden.recording import kept, played, topics
from tests.golden.scenarios import all_scenarios
from tests.support.dynamodb.trees import AsyncTree, SyncTree

TOPICS = sorted({scenario.topic for scenario in all_scenarios()})


@pytest.mark.parametrize("tree", [AsyncTree, SyncTree], ids=["async", "sync"])
@pytest.mark.parametrize("topic", TOPICS)
async def test_the_requests_are_those_that_are_kept(topic, tree, golden_table):
    expected, seen = kept(topic), {}
    for scenario in all_scenarios():
        if scenario.topic == topic:
            seen[scenario.kind] = await played(scenario, tree(), golden_table)
    for kind, requests in seen.items():
        assert requests == expected[kind], f"{topic} of {kind} sends other requests"
    assert seen.keys() == expected.keys()


def test_all_that_is_kept_belongs_to_a_script():
    assert topics() == TOPICS
