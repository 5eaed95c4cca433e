"""Limiters are found among the other stacks of a region."""

import json

from zae_limiter import RateLimiter
from zae_limiter.models.stack import StackOptions

MANY = 101  # more than one page of DescribeStacks
QUEUE = json.dumps({"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}})


async def test_limiters_are_found_by_tag_and_by_their_older_names_on_every_page(
    deployment, opening, unique_name
):
    control = deployment.manager.control
    older = f"ZAEL-{unique_name}"
    others = [f"a{index}-{unique_name}" for index in range(MANY)]
    for name in (*others, older):
        control.call("cloudformation", "create_stack", StackName=name, TemplateBody=QUEUE)
    try:
        deployment.deploy(StackOptions(tags={"team": "search"}))
        found = await RateLimiter.list_deployed(opening["region"], opening["endpoint_url"])
    finally:
        for name in (*others, older):
            control.call("cloudformation", "delete_stack", StackName=name)
    ours = [info for info in found if unique_name in info.stack_name]
    assert [info.stack_name for info in ours] == [older, deployment.name]
    assert [info.user_name for info in ours] == [unique_name, deployment.name]
    assert [info.schema_version for info in ours] == [None, "1"]
    assert {info.region for info in ours} == {opening["region"]}
