"""Routes of entities, limits and usage. Each mirrors a command, with its JSON.

Windows of usage are those of the library, with all of its fields.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import KEEP, OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.usage import WindowType
from zae_limiter.naming import DEFAULT_RESOURCE, check_entity_id, check_resource
from zae_limiter_ops.views.entities import entity_json
from zae_limiter_ops.views.formatting import limits_json, superseded_json
from zae_limiter_service.access import MANAGING, READING
from zae_limiter_service.answers import Answer, json_answer, problem
from zae_limiter_service.fields import (
    ENTITY,
    FLAG,
    LIMITS,
    METADATA,
    RESOURCE,
    RESOURCE_OR_DEFAULT,
    TEXT,
    Field,
    choice,
    fields,
    whole,
)
from zae_limiter_service.requests import OF_NAMESPACE, PROBLEMS, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter import Repository
    from zae_limiter.models.config import SupersededLimit
    from zae_limiter.models.limit import Limit
    from zae_limiter_service.requests import Handler, ServiceRequest
    from zae_limiter_service.stores import NamespaceStores

MAX_PAGE = 1000
DEFAULT_PAGE = 100
_LIMIT = Field("limit", whole(1, MAX_PAGE), text=f"Entries of a page; {DEFAULT_PAGE} by default")
_RESOURCE_QUERY = Field(
    "resource", RESOURCE_OR_DEFAULT, text="Resource; default: _default_, all without their own"
)
_IF_MISSING = Field("if_missing", FLAG, text="Keep what is stored already")
_MERGE = Field("merge", FLAG, text="Keep the limits in force, and replace only those named")
_LIMITS_BODY = fields(
    Field("limits", LIMITS, True, "Limits, as objects or in the notation of -l"),
    _IF_MISSING,
    _MERGE,
)
_SYSTEM_BODY = fields(
    Field("limits", LIMITS, text="Limits; default: those that are stored"),
    Field(
        "on_unavailable",
        choice(("allow", "block", "none")),
        text="Answer in an outage; none removes it; default: as stored",
    ),
    _IF_MISSING,
    _MERGE,
)
_CREATE_BODY = fields(
    Field("entity_id", ENTITY, True, "Id"),
    Field("name", TEXT, text="Name shown to people"),
    Field("parent_id", ENTITY, text="Id of the parent"),
    Field("cascade", FLAG, text="Whether every acquire charges the parent, too"),
    Field("metadata", METADATA, text="Notes"),
    _IF_MISSING,
)
_PARENT_BODY = fields(
    Field("parent_id", ENTITY, text="Id of the parent; default: none"),
    Field("cascade", FLAG, text="Whether every acquire charges the parent, too"),
)
_USAGE = (
    Field("entity", ENTITY, text="Only this entity"),
    Field("resource", RESOURCE, text="Only this resource"),
    Field("window", choice(WindowType), text="Length of the windows; hourly by default"),
    Field("start", TEXT, text="First moment, in ISO 8601"),
    Field("end", TEXT, text="Last moment, in ISO 8601"),
)
_USAGE_QUERY = fields(
    *_USAGE, _LIMIT, Field("next_key", TEXT, text="Where the last page ended"), OF_NAMESPACE
)
_SUMMARY_QUERY = fields(*_USAGE, OF_NAMESPACE)
_LIST_QUERY = fields(
    Field("parent", ENTITY, text="Only children of this entity"),
    _LIMIT,
    Field("cursor", TEXT, text="Where the last page ended"),
    OF_NAMESPACE,
)
_OF_RESOURCE = fields(_RESOURCE_QUERY, OF_NAMESPACE)


class ConfigRoutes:
    """Reads and writes entities and limits, and reads usage."""

    def __init__(self, stores: NamespaceStores) -> None:
        self._stores = stores

    def routes(self) -> tuple[Route, ...]:
        entity = "/v1/entities/{entity}"
        of_resource, of_system = "/v1/resources/{resource}/limits", "/v1/system/limits"
        return (
            _read("/v1/entities", self.list_entities, "List entities", "EntityPage", _LIST_QUERY),
            _write(
                "POST",
                "/v1/entities",
                self.create_entity,
                "Create an entity",
                "Entity",
                body=_CREATE_BODY,
                status=201,
                others={409: "Problem"},
            ),
            _read(entity, self.get_entity, "Return an entity", "Entity"),
            _write("DELETE", entity, self.delete_entity, "Delete an entity", "Deleted"),
            _write(
                "PUT",
                f"{entity}/parent",
                self.set_parent,
                "Set the parent",
                "Entity",
                body=_PARENT_BODY,
            ),
            _read(
                f"{entity}/limits",
                self.get_limits,
                "Return own limits",
                "EntityLimits",
                _OF_RESOURCE,
            ),
            _write(
                "PUT",
                f"{entity}/limits",
                self.set_limits,
                "Replace own limits",
                "ChangedEntityLimits",
                body=_LIMITS_BODY,
                query=_OF_RESOURCE,
            ),
            _write(
                "DELETE",
                f"{entity}/limits",
                self.delete_limits,
                "Remove own limits",
                "DeletedEntityLimits",
                query=_OF_RESOURCE,
            ),
            _read("/v1/resources", self.list_resources, "List resources", "Resources"),
            _read(of_resource, self.get_defaults, "Return defaults", "ResourceLimits"),
            _write(
                "PUT",
                of_resource,
                self.set_defaults,
                "Replace defaults",
                "ChangedResourceLimits",
                body=_LIMITS_BODY,
            ),
            _write(
                "DELETE",
                of_resource,
                self.delete_defaults,
                "Remove defaults",
                "DeletedResourceLimits",
            ),
            _read(of_system, self.get_system, "Return system defaults", "SystemLimits"),
            _write(
                "PUT",
                of_system,
                self.set_system,
                "Replace system defaults",
                "ChangedSystemLimits",
                body=_SYSTEM_BODY,
            ),
            _write(
                "DELETE", of_system, self.delete_system, "Remove system defaults", "DeletedLimits"
            ),
            _read("/v1/usage", self.usage, "List usage windows", "UsagePage", _USAGE_QUERY),
            _read(
                "/v1/usage/summary",
                self.summary,
                "Return totals of usage",
                "UsageSummary",
                _SUMMARY_QUERY,
            ),
        )

    # --- entities

    async def list_entities(self, request: ServiceRequest) -> Answer:
        repository, query = await self._repository(request), request.query
        size = query["limit"] or DEFAULT_PAGE
        found, cursor = await repository.list_entities(size, query["cursor"], query["parent"])
        data = {"entities": [entity_json(each) for each in found], "next_cursor": cursor}
        return json_answer(200, data)

    async def create_entity(self, request: ServiceRequest) -> Answer:
        values = request.fields()
        if values["cascade"] and values["parent_id"] is None:
            raise ValidationError("cascade", True, "needs parent_id")
        repository = await self._repository(request)
        create = repository.ensure_entity if values["if_missing"] else repository.create_entity
        created = await create(
            values["entity_id"],
            values["name"],
            values["parent_id"],
            bool(values["cascade"]),
            values["metadata"] or {},
            request.caller.name,
        )
        return json_answer(201, entity_json(created))

    async def get_entity(self, request: ServiceRequest) -> Answer:
        entity_id = check_entity_id(request.arguments[0])
        found = await (await self._repository(request)).get_entity(entity_id)
        if found is None:
            return problem(404, "unknown-entity", f"entity {entity_id!r} does not exist")
        return json_answer(200, entity_json(found))

    async def delete_entity(self, request: ServiceRequest) -> Answer:
        entity_id = check_entity_id(request.arguments[0])
        repository = await self._repository(request)
        was_there = await repository.get_entity(entity_id) is not None
        await repository.delete_entity(entity_id, request.caller.name)
        return json_answer(200, {"entity_id": entity_id, "deleted": was_there})

    async def set_parent(self, request: ServiceRequest) -> Answer:
        values = request.fields()
        entity_id = check_entity_id(request.arguments[0])
        repository = await self._repository(request)
        parent_id = values["parent_id"]
        cascade = parent_id is not None and values["cascade"] is not False
        await repository.set_parent(entity_id, parent_id, cascade, request.caller.name)
        found = await repository.get_entity(entity_id)
        return json_answer(200, entity_json(found or Entity(entity_id)))

    # --- limits

    async def get_limits(self, request: ServiceRequest) -> Answer:
        entity_id, resource = _bucket(request)
        limits = await (await self._repository(request)).get_limits(entity_id, resource)
        return _limits({"entity_id": entity_id, "resource": resource}, limits)

    async def set_limits(self, request: ServiceRequest) -> Answer:
        entity_id, resource = _bucket(request)
        values, repository = request.fields(), await self._repository(request)
        superseded = await _superseded(repository, values, entity_id, resource)
        changed = await repository.set_limits(
            entity_id,
            values["limits"],
            resource,
            request.caller.name,
            if_missing=bool(values["if_missing"]),
            merge=bool(values["merge"]),
        )
        after = await repository.get_limits(entity_id, resource)
        subject = {"entity_id": entity_id, "resource": resource}
        return _changed(subject, after, changed, superseded)

    async def delete_limits(self, request: ServiceRequest) -> Answer:
        entity_id, resource = _bucket(request)
        repository = await self._repository(request)
        limits = await repository.get_limits(entity_id, resource)
        if limits:
            await repository.delete_limits(entity_id, resource, request.caller.name)
        return _limits({"entity_id": entity_id, "resource": resource}, limits, deleted=bool(limits))

    async def list_resources(self, request: ServiceRequest) -> Answer:
        repository = await self._repository(request)
        return json_answer(200, {"resources": await repository.list_resources()})

    async def get_defaults(self, request: ServiceRequest) -> Answer:
        resource = check_resource(request.arguments[0])
        limits = await (await self._repository(request)).get_resource_defaults(resource)
        return _limits({"resource": resource}, limits)

    async def set_defaults(self, request: ServiceRequest) -> Answer:
        resource = check_resource(request.arguments[0])
        values, repository = request.fields(), await self._repository(request)
        superseded = await _superseded(repository, values, None, resource)
        changed = await repository.set_resource_defaults(
            resource,
            values["limits"],
            request.caller.name,
            if_missing=bool(values["if_missing"]),
            merge=bool(values["merge"]),
        )
        after = await repository.get_resource_defaults(resource)
        return _changed({"resource": resource}, after, changed, superseded)

    async def delete_defaults(self, request: ServiceRequest) -> Answer:
        resource = check_resource(request.arguments[0])
        repository = await self._repository(request)
        limits = await repository.get_resource_defaults(resource)
        if limits:
            await repository.delete_resource_defaults(resource, request.caller.name)
        return _limits({"resource": resource}, limits, deleted=bool(limits))

    async def get_system(self, request: ServiceRequest) -> Answer:
        limits, policy = await (await self._repository(request)).get_system_defaults()
        return _limits({"on_unavailable": policy}, limits)

    async def set_system(self, request: ServiceRequest) -> Answer:
        values, repository = request.fields(), await self._repository(request)
        stored, _ = await repository.get_system_defaults()
        limits, named = values["limits"] or stored, values["on_unavailable"]
        if not limits:
            raise ValidationError("limits", None, "are missing: a policy belongs to limits")
        policy = None if named == "none" else OnUnavailable.parse(named) if named else KEEP
        superseded = await _superseded(repository, values, None, None)
        changed = await repository.set_system_defaults(
            limits,
            policy,
            request.caller.name,
            if_missing=bool(values["if_missing"]),
            merge=bool(values["merge"]),
        )
        after, kept = await repository.get_system_defaults()
        return _changed({"on_unavailable": kept}, after, changed, superseded)

    async def delete_system(self, request: ServiceRequest) -> Answer:
        repository = await self._repository(request)
        limits, _ = await repository.get_system_defaults()
        if limits:
            await repository.delete_system_defaults(request.caller.name)
        return _limits({}, limits, deleted=bool(limits))

    # --- usage

    async def usage(self, request: ServiceRequest) -> Answer:
        query, repository = request.query, await self._repository(request)
        found, next_key = await repository.get_usage_snapshots(
            **_selection(query), limit=query["limit"] or DEFAULT_PAGE, next_key=query["next_key"]
        )
        snapshots = [
            {**asdict(each), "calls": each.calls, "rejected_calls": each.rejected_calls}
            for each in found
        ]
        data = {"snapshots": snapshots, "next_key": next_key}
        return json_answer(200, data)

    async def summary(self, request: ServiceRequest) -> Answer:
        repository = await self._repository(request)
        found = await repository.get_usage_summary(**_selection(request.query))
        return json_answer(200, {"namespace": request.namespace, **asdict(found)})

    async def _repository(self, request: ServiceRequest) -> Repository:
        return await self._stores.repository(request.namespace)


def _selection(query: Any) -> dict[str, Any]:
    return {
        "entity_id": query["entity"],
        "resource": query["resource"],
        "window_type": query["window"] or WindowType.HOURLY,
        "start_time": query["start"],
        "end_time": query["end"],
    }


def _bucket(request: ServiceRequest) -> tuple[str, str]:
    return check_entity_id(request.arguments[0]), request.query["resource"] or DEFAULT_RESOURCE


def _limits(subject: dict[str, Any], limits: Sequence[Limit], **more: bool) -> Answer:
    return json_answer(200, {**subject, **more, "limits": limits_json(limits)})


async def _superseded(
    repository: Repository, values: dict[str, Any], entity_id: str | None, resource: str | None
) -> list[SupersededLimit]:
    """Return the limits in force that the limits of a body supersede."""
    if values["merge"] or not values["limits"]:
        return []
    return await repository.superseded_limits(values["limits"], entity_id, resource)


def _changed(
    subject: dict[str, Any],
    limits: Sequence[Limit],
    changed: bool,
    superseded: Sequence[SupersededLimit],
) -> Answer:
    gone = superseded_json(superseded if changed else ())
    return _limits({**subject, "superseded": gone}, limits, changed=changed)


def _read(path: str, handler: Handler, summary: str, schema: str, query: Any = None) -> Route:
    options = {} if query is None else {"query": query}
    return Route("GET", path, handler, READING, summary, {200: schema, **PROBLEMS}, **options)


def _write(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    schema: str,
    *,
    status: int = 200,
    others: dict[int, str] | None = None,
    **options: Any,
) -> Route:
    answers = {status: schema, **PROBLEMS, **(others or {})}
    return Route(method, path, handler, MANAGING, summary, answers, **options)
