"""How large an item is, as DynamoDB counts."""

import json


def item_bytes(item):
    """Names and values in DynamoDB JSON; index keys are attributes like any other."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value):
    [(kind, content)] = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        return number_bytes(content)
    if kind in ("BOOL", "NULL"):
        return 1
    raise AssertionError(f"bucket items are flat: {json.dumps(value)}")


def number_bytes(text):
    """Two digits a byte, one more for the exponent and one for a minus; zeros are not spared."""
    digits = text.lstrip("-")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
