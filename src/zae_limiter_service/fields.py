"""Bodies and queries of requests: one description parses them, and documents them in OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from zae_limiter.bounded_json import parse_bounded
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit, check_amounts, check_limits
from zae_limiter.models.notation import parse_limit
from zae_limiter.naming import (
    MAX_ID_LENGTH,
    check_entity_id,
    check_namespace,
    check_resource,
    check_resource_or_default,
)

MAX_BODY = 262_144  # bytes: hundreds of limits
MAX_TEXT = 2_048  # characters of a name, a cursor or a moment
MAX_RESOURCES = 20  # besides the first one of a lease
MAX_DEPTH = 8


class Kind(NamedTuple):
    """A kind of value: its JSON schema, and the function that checks a value of that kind."""

    schema: Mapping[str, Any]
    check: Callable[[Any, str], Any]  # the value and the name of its field


class Field(NamedTuple):
    """One field of a body or a query."""

    name: str
    kind: Kind
    is_required: bool = False
    text: str = ""


class Fields(NamedTuple):
    """The fields that a body or a query may have; others are refused."""

    fields: tuple[Field, ...]
    checks: Mapping[str, Callable[[Any, str], Any]]  # by name
    required: tuple[str, ...]

    def check(self, data: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the checked values by name, None for those that are left out."""
        if not data.keys() <= self.checks.keys():
            name = next(name for name in data if name not in self.checks)
            names = ", ".join(self.checks) or "none"
            raise ValidationError(str(name), data[name], f"is unknown; {where} has: {names}")
        for name in self.required:
            if data.get(name) is None:
                raise ValidationError(name, None, f"is missing from {where}")
        values: dict[str, Any] = dict.fromkeys(self.checks)
        for name, value in data.items():
            if value is not None:
                values[name] = self.checks[name](value, name)
        return values

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a body."""
        return {
            "type": "object",
            "properties": {
                field.name: {**field.kind.schema, "description": field.text}
                for field in self.fields
            },
            "required": [field.name for field in self.fields if field.is_required],
            "additionalProperties": False,
        }


def fields(*each: Field) -> Fields:
    return Fields(
        each,
        {field.name: field.kind.check for field in each},
        tuple(field.name for field in each if field.is_required),
    )


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object."""
    if not body:
        return {}
    try:
        data = parse_bounded(body.decode(), longest=MAX_BODY, deepest=MAX_DEPTH, is_strict=True)
    except (ValueError, RecursionError) as error:
        raise ValidationError("body", body[:40], f"is not JSON: {error}") from None
    if type(data) is not dict:
        raise ValidationError("body", data, "must be a JSON object")
    return data


# --- kinds of values


def _text(value: object, field: str, longest: int = MAX_TEXT) -> str:
    if not isinstance(value, str) or not value or len(value) > longest:
        raise ValidationError(field, value, f"must be a text of 1 to {longest} characters")
    if not value.isprintable():
        raise ValidationError(field, value, "must be printable")
    return value


def _flag(value: object, field: str) -> bool:
    if value in ("true", "false"):  # in a query
        return value == "true"
    if type(value) is not bool:
        raise ValidationError(field, value, "must be true or false")
    return value


def _amounts(value: object, field: str) -> dict[str, Any]:
    return check_amounts(value, field)


def _signed_amounts(value: object, field: str) -> dict[str, Any]:
    return check_amounts(value, field, signed=True)


def _also(check: Callable[[Any, str], dict[str, Any]]) -> Callable[[Any, str], Any]:
    def check_also(value: object, field: str) -> dict[str, dict[str, Any]]:
        if type(value) is not dict:
            raise ValidationError(field, value, "must be an object of resource to amounts")
        if len(value) > MAX_RESOURCES:
            raise ValidationError(field, len(value), f"must have at most {MAX_RESOURCES} resources")
        return {
            check_resource(name, field): check(amounts, f"{field}.{name}")
            for name, amounts in value.items()
        }

    return check_also


def _limits(value: object, field: str) -> tuple[Limit, ...]:
    if type(value) is not list:
        raise ValidationError(field, value, "must be a list of limits")
    return check_limits([_limit(each) for each in value], field)


def _limit(value: object) -> Limit:
    return parse_limit(value) if isinstance(value, str) else Limit.from_dict(value)  # type: ignore[arg-type]


def _metadata(value: object, field: str) -> dict[str, str]:
    if type(value) is not dict or not all(isinstance(each, str) for each in value.values()):
        raise ValidationError(field, value, "must be an object of texts")
    return value


def seconds(least: float, most: float) -> Kind:
    """Return the kind of a duration."""

    def check(value: object, field: str) -> float:
        is_number = type(value) in (int, float)
        if not is_number or not least <= value <= most:  # type: ignore[operator]
            raise ValidationError(field, value, f"must be {least:g} to {most:g} seconds")
        return float(value)  # type: ignore[arg-type]

    return Kind({"type": "number", "minimum": least, "maximum": most}, check)


def whole(least: int, most: int) -> Kind:
    """Return the kind of a whole number, in a query."""

    def check(value: object, field: str) -> int:
        number = int(value) if isinstance(value, str) and _is_short_number(value) else None
        if number is None or not least <= number <= most:
            raise ValidationError(field, value, f"must be a whole number from {least} to {most}")
        return number

    return Kind({"type": "integer", "minimum": least, "maximum": most}, check)


def choice(names: Iterable[str]) -> Kind:
    """Return the kind of a value out of a few names."""
    offered = tuple(names)

    def check(value: object, field: str) -> str:
        if value not in offered:
            raise ValidationError(field, value, f"must be one of {', '.join(offered)}")
        return str(value)

    return Kind({"type": "string", "enum": list(offered)}, check)


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


_AMOUNT_SCHEMA = {
    "oneOf": [{"type": "integer"}, {"type": "string", "description": "money, such as '0.25'"}]
}
AMOUNTS_SCHEMA = {"type": "object", "additionalProperties": _AMOUNT_SCHEMA}
_ALSO_SCHEMA = {"type": "object", "additionalProperties": AMOUNTS_SCHEMA}
_TEXT_SCHEMA = {"type": "string", "minLength": 1}

TEXT = Kind(_TEXT_SCHEMA, _text)
FLAG = Kind({"type": "boolean"}, _flag)
ENTITY = Kind({**_TEXT_SCHEMA, "maxLength": MAX_ID_LENGTH}, check_entity_id)
RESOURCE = Kind(_TEXT_SCHEMA, check_resource)
RESOURCE_OR_DEFAULT = Kind(_TEXT_SCHEMA, check_resource_or_default)
NAMESPACE = Kind(_TEXT_SCHEMA, check_namespace)
AMOUNTS = Kind(AMOUNTS_SCHEMA, _amounts)
SIGNED_AMOUNTS = Kind(AMOUNTS_SCHEMA, _signed_amounts)
ALSO = Kind(_ALSO_SCHEMA, _also(_amounts))
SIGNED_ALSO = Kind(_ALSO_SCHEMA, _also(_signed_amounts))
METADATA = Kind({"type": "object", "additionalProperties": {"type": "string"}}, _metadata)
LIMITS = Kind(
    {
        "type": "array",
        "items": {"oneOf": [{"type": "object"}, {"type": "string", "example": "rpm:100/min"}]},
    },
    _limits,
)
