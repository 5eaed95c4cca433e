"""The OpenAPI document of the service, made from its table of routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zae_limiter._version import __version__
from zae_limiter_service.answers import JSON, PROBLEM
from zae_limiter_service.fields import AMOUNTS_SCHEMA

if TYPE_CHECKING:
    from zae_limiter_service.requests import Route, Routes

VERSION = "3.1.0"
TEXT_KIND = "text/plain"
_PROBLEM_SCHEMAS = ("Problem", "Rejection")
PHRASES = {
    200: "Done",
    201: "Created",
    204: "Done",
    400: "The request is wrong; nothing was charged",
    401: "A token is needed",
    403: "The token does not permit this",
    404: "There is no such thing",
    409: "The state does not allow this",
    410: "The lease has expired",
    421: "Another host holds the lease; `owner` is its URL",
    422: "The Idempotency-Key belongs to another request",
    429: "A limit does not have enough; nothing was charged",
    503: "Try again later",
}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_FLAG = {"type": "boolean"}
_ANY_OBJECT = {"type": "object"}
_LIMITS = {"limits": {"type": "array", "items": _ANY_OBJECT}}
_LEASE = {
    "id": _TEXT,
    "entity": _TEXT,
    "resource": _TEXT,
    "amounts": AMOUNTS_SCHEMA,
    "remaining": AMOUNTS_SCHEMA,
}
_ENTITY = {
    "entity_id": _TEXT,
    "name": _TEXT_OR_NULL,
    "parent_id": _TEXT_OR_NULL,
    "cascade": _FLAG,
    "metadata": _ANY_OBJECT,
    "created_at": _TEXT,
}
_OF_ENTITY = {"entity_id": _TEXT, "resource": _TEXT, **_LIMITS}
_OF_RESOURCE = {"resource": _TEXT, **_LIMITS}
_OF_SYSTEM = {"on_unavailable": _TEXT_OR_NULL, **_LIMITS}
_SUPERSEDED = _object({"limit_name": _TEXT, "resource": _TEXT_OR_NULL, "source": _TEXT})
_CHANGED = {"changed": _FLAG, "superseded": {"type": "array", "items": _SUPERSEDED}}
_DELETED = {"deleted": _FLAG}
_PROBLEM = {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Lease": _object({**_LEASE, "expires_at": {"type": "string", "format": "date-time"}}),
    "SettledLease": _object(_LEASE),
    "Problem": _object(_PROBLEM, field=_TEXT, owner=_TEXT_OR_NULL),
    "Rejection": _object(
        {
            **_PROBLEM,
            "error": {"type": "string", "enum": ["rate_limit_exceeded"]},
            "message": _TEXT,
            "retry_after_seconds": _NUMBER_OR_NULL,
            "limited_by": {"type": ["array", "null"], "items": _TEXT},
            **_LIMITS,
        }
    ),
    "Check": _object({"available": _FLAG, "retry_after_seconds": _NUMBER_OR_NULL, **_LIMITS}),
    "Explanation": {
        "type": "object",
        "properties": {
            "answer": {"type": "string", "enum": ["admitted", "limited", "error"]},
            "retry_after_seconds": _NUMBER_OR_NULL,
            **_LIMITS,
        },
        "required": ["answer", "entity_id", "resource", "resolution", "limits"],
    },
    "Description": _ANY_OBJECT,
    "Health": _object({"status": {"type": "string", "enum": ["ok"]}}),
    "Text": _TEXT,
    "Entity": _object(_ENTITY),
    "EntityPage": _object(
        {"entities": {"type": "array", "items": _object(_ENTITY)}, "next_cursor": _TEXT_OR_NULL}
    ),
    "Deleted": _object({"entity_id": _TEXT, "deleted": _FLAG}),
    "EntityLimits": _object(_OF_ENTITY),
    "ChangedEntityLimits": _object({**_OF_ENTITY, **_CHANGED}),
    "DeletedEntityLimits": _object({**_OF_ENTITY, **_DELETED}),
    "Resources": _object({"resources": {"type": "array", "items": _TEXT}}),
    "ResourceLimits": _object(_OF_RESOURCE),
    "ChangedResourceLimits": _object({**_OF_RESOURCE, **_CHANGED}),
    "DeletedResourceLimits": _object({**_OF_RESOURCE, **_DELETED}),
    "SystemLimits": _object(_OF_SYSTEM),
    "ChangedSystemLimits": _object({**_OF_SYSTEM, **_CHANGED}),
    "DeletedLimits": _object({**_LIMITS, **_DELETED}),
    "UsagePage": _object(
        {"snapshots": {"type": "array", "items": _ANY_OBJECT}, "next_key": _TEXT_OR_NULL}
    ),
    "UsageSummary": _ANY_OBJECT,
}


def describe(routes: Routes) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes.all:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": VERSION,
        "info": {"title": "zae-limiter service", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            str(status): _response(status, schema) for status, schema in route.answers.items()
        },
        "security": [] if route.roles is None else [{"token": []}],
    }
    if route.body is not None:
        is_required = any(field.is_required for field in route.body.fields)
        operation["requestBody"] = {
            "required": is_required,
            "content": {JSON: {"schema": route.body.schema()}},
        }
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    in_query = [
        {
            "name": field.name,
            "in": "query",
            "required": field.is_required,
            "schema": dict(field.kind.schema),
            "description": field.text,
        }
        for field in route.query.fields
    ]
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": _TEXT,
        "description": "A repetition within 10 minutes gets the first answer",
    }
    return [*in_path, *in_query, *([key] if route.takes_key else [])]


def _response(status: int, schema: str) -> dict[str, Any]:
    response: dict[str, Any] = {"description": PHRASES[status]}
    if schema:
        kind = PROBLEM if schema in _PROBLEM_SCHEMAS else TEXT_KIND if schema == "Text" else JSON
        reference = {"$ref": f"#/components/schemas/{schema}"}
        response["content"] = {kind: {"schema": reference}}
    return response
