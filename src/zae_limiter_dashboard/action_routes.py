"""The route of actions: a form, its preview, and the result of the confirmed change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import LimitsChangedError, ValidationError
from zae_limiter.naming import check_principal, process_author
from zae_limiter_dashboard.actions import ACTIONS
from zae_limiter_dashboard.config_levels import Level
from zae_limiter_dashboard.limit_actions import limit_lines
from zae_limiter_dashboard.previews import ActionPlace
from zae_limiter_ops.views.names import unknown_names

if TYPE_CHECKING:
    from starlette.responses import Response

    from zae_limiter import SyncRepository
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter_dashboard.previews import Fields, PageAction, Preview
    from zae_limiter_dashboard.rendering import Ask, Renderer
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_dashboard.store import Stores, Watched
    from zae_limiter_ops.views.advice import GivenOptions
    from zae_limiter_ops.views.names import UnknownName


class ActionRoutes:
    """The forms of all actions, for those who may change something."""

    def __init__(
        self,
        renderer: Renderer,
        stores: Stores,
        settings: DashboardSettings,
        given: GivenOptions,
    ) -> None:
        self._renderer = renderer
        self._stores = stores
        self._settings = settings
        self._given = given

    def action(self, ask: Ask) -> Response:
        """Show the form of an action, its preview, or its result."""
        if not self._settings.allow_edit:
            return self._renderer.html("read_only.html", ask, status=403)
        name = ask.path.rpartition("/")[2]
        action = ACTIONS.get(name)
        if action is None:
            raise ValidationError("action", name, "is unknown")
        watched = self._stores.watch(ask.namespace)
        if not ask.is_post and action.has_form:
            return self._form(ask, watched, name, ask.query)
        # An action without a form begins with its preview.
        fields = ask.form if ask.is_post else ask.query
        is_conflict = False
        try:
            if ask.is_post and fields.get("step") == "confirm":
                return self._perform(ask, watched, name, fields)
            preview = self._preview_of(watched, action, fields)
        except LimitsChangedError as error:
            if action.has_form:
                return self._form(
                    ask, watched, name, fields, status=409, problem=str(error), is_conflict=True
                )
            is_conflict = True
            preview = self._preview_of(watched, action, fields)
        except ValidationError as error:
            if not action.has_form:
                raise
            return self._form(ask, watched, name, fields, status=400, problem=str(error))
        return self._renderer.html(
            "preview.html",
            ask,
            status=409 if is_conflict else 200,
            is_conflict=is_conflict,
            changed_by=_last_change(watched, Level.of(fields)) if is_conflict else None,
            action=action,
            name=name,
            preview=preview,
            unknown=_unknown(watched.repository, preview.fields),
            command=preview.command(self._given),
            principal=self.principal(ask.headers),
        )

    def _perform(self, ask: Ask, watched: Watched, name: str, fields: Fields) -> Response:
        """Make the change, and show what was done."""
        principal = self.principal(ask.headers)
        done = ACTIONS[name].perform(watched.repository, fields, principal)
        self._renderer.forget_live_parts()
        watched.forget(fields.get("entity", ""))
        return self._renderer.html(
            "done.html", ask, done=done, fields=fields, principal=principal, name=name
        )

    @staticmethod
    def _preview_of(watched: Watched, action: PageAction, fields: Fields) -> Preview:
        return action.preview(ActionPlace(watched.repository, watched.keeper.board()), fields)

    def _form(
        self,
        ask: Ask,
        watched: Watched,
        name: str,
        fields: Fields,
        *,
        status: int = 200,
        problem: str | None = None,
        is_conflict: bool = False,
    ) -> Response:
        repository = watched.repository
        values: dict[str, Any] = {
            "entity": fields.get("entity", ""),
            "resource": fields.get("resource", ""),
            "seconds": fields.get("seconds", "60"),
            "amounts": fields.get("amounts", ""),
            "parent": fields.get("parent", ""),
            "cascade": fields.get("cascade", "on") == "on",
            "stored": (),
            "limits": "",
            "before": "",
            "level": None,
            "in_force": None,
            "changed_by": None,
        }
        if name == "set-limits":
            level = Level.of(fields)
            stored = level.stored(repository)
            in_force, source = level.in_force(repository)
            # What was typed stays, but it replaces the limits that are shown now.
            before = fields["before"] if "before" in fields and not is_conflict else None
            values |= {
                "level": level,
                "stored": stored,
                "in_force": None if stored or source is None else (in_force, source),
                "limits": fields.get("limits", limit_lines(stored or in_force)),
                "before": limit_lines(stored) if before is None else before,
            }
            if is_conflict:
                values["changed_by"] = _last_change(watched, level)
        if name == "set-parent" and "parent" not in fields:
            entity = repository.get_entity(values["entity"]) if values["entity"] else None
            if entity is not None:
                values |= {"parent": entity.parent_id or "", "cascade": entity.cascade}
        return self._renderer.html(
            "form.html",
            ask,
            status=status,
            name=name,
            action=ACTIONS[name],
            problem=problem,
            is_conflict=is_conflict,
            **values,
        )

    def principal(self, headers: Mapping[str, str]) -> str:
        """Return the author of a change: the user of the system, or the one that a proxy names."""
        header = self._settings.principal_header
        if header is None:
            return process_author()
        name = check_principal(headers.get(header, "").strip() or None)
        if not name:
            raise ValidationError(
                header, "", "is missing: the proxy must name the user of every request in it"
            )
        return name


def _unknown(repository: SyncRepository, fields: Fields) -> list[UnknownName]:
    """Return the names of a change that were never seen."""
    parent = unknown_names(repository, fields.get("parent"), None)
    return unknown_names(repository, fields.get("entity"), fields.get("resource")) + parent


def _last_change(watched: Watched, level: Level) -> AuditEvent | None:
    """Return the newest change of a configuration level; None if none is logged."""
    events = watched.repository.get_audit_events(level.subject, limit=1)
    return events[0] if events else None
