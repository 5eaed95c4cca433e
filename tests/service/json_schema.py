"""A checker for the part of JSON Schema that the OpenAPI document uses."""

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def mistakes(value, schema, document, path="$"):
    """Return what is wrong with a value; an empty list if it is valid."""
    if "$ref" in schema:
        found = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return mistakes(value, found, document, path)
    if "oneOf" in schema:
        tried = [mistakes(value, each, document, path) for each in schema["oneOf"]]
        return [] if tried.count([]) == 1 else [f"{path}: not exactly one of the forms"]
    wrong = []
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_a(value, name) for name in names):
            return [f"{path}: {value!r} is not of type {names}"]
    if "enum" in schema and value not in schema["enum"]:
        wrong.append(f"{path}: {value!r} is none of {schema['enum']}")
    if isinstance(value, dict):
        wrong += object_mistakes(value, schema, document, path)
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            wrong += mistakes(each, schema["items"], document, f"{path}[{index}]")
    return wrong


def object_mistakes(value, schema, document, path):
    wrong = [f"{path}: lacks {name}" for name in schema.get("required", ()) if name not in value]
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in value.items():
        if name in known:
            wrong += mistakes(each, known[name], document, f"{path}.{name}")
        elif others is False:
            wrong.append(f"{path}: has {name}, which is unknown")
        elif isinstance(others, dict):
            wrong += mistakes(each, others, document, f"{path}.{name}")
    return wrong


def is_a(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])
