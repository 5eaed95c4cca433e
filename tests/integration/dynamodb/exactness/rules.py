"""What DynamoDB refuses in an UpdateItem, and servers for tests may not."""

import re
from collections import Counter

CLAUSES = re.compile(r"\b(SET|ADD|REMOVE)\b")
PLACEHOLDER = re.compile(r"[#:]\w+")


def check_update(body):
    """Every placeholder is defined and used, and no attribute is written twice."""
    update, condition = body["UpdateExpression"], body.get("ConditionExpression", "")
    used = set(PLACEHOLDER.findall(update)) | set(PLACEHOLDER.findall(condition))
    names = body.get("ExpressionAttributeNames", {})
    assert used == names.keys() | body.get("ExpressionAttributeValues", {}).keys(), body
    assert len(set(names.values())) == len(names), body
    written = Counter()
    words = CLAUSES.split(update)
    assert len(words[1::2]) == len(set(words[1::2])), body
    for clause in words[2::2]:
        for part in re.split(r",(?![^(]*\))", clause):
            written[PLACEHOLDER.findall(part)[0]] += 1
    assert set(written.values()) == {1}, body
