"""The routes: each parses a request, asks a view for its records, and renders them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from zae_limiter.bounded_json import parse_bounded
from zae_limiter.exceptions import LimitsChangedError, ValidationError, ZAELimiterError
from zae_limiter.models.usage import money_label
from zae_limiter.naming import check_entity_id, check_principal, check_resource, process_author
from zae_limiter_dashboard.actions import ACTIONS, ActionPlace, Level, limit_lines
from zae_limiter_dashboard.board import READ_UNITS_PER_SHOWN
from zae_limiter_dashboard.charts import CallsChart
from zae_limiter_dashboard.entity_view import SPANS, draw_usage, entity_levels, entity_page, explain
from zae_limiter_dashboard.guard import session_cookie
from zae_limiter_dashboard.history import DAYS
from zae_limiter_dashboard.limits_view import compare_manifest, read_named_manifest, stored_limits
from zae_limiter_dashboard.live import LiveParts
from zae_limiter_dashboard.overview import overview_of
from zae_limiter_dashboard.problems import problem_of
from zae_limiter_dashboard.rows import DEFAULT_SORT, SORTS, matching
from zae_limiter_dashboard.store import (
    READ_UNITS_PER_CHECK,
    READ_UNITS_PER_SOURCE,
    READ_UNITS_PER_SUBJECT,
    REFRESH_S,
)
from zae_limiter_dashboard.templating import environment
from zae_limiter_ops.reports.usage_columns import entity_columns
from zae_limiter_ops.views.amounts import amount_words, parse_amounts
from zae_limiter_ops.views.columns import json_of, write_csv
from zae_limiter_ops.views.formatting import LEVELS
from zae_limiter_ops.views.names import unknown_names, unknown_resource, unused_limit

if TYPE_CHECKING:
    from starlette.requests import Request

    from zae_limiter import SyncRepository
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter.models.usage import UsageRanking
    from zae_limiter_dashboard.actions import Fields
    from zae_limiter_dashboard.board import Board
    from zae_limiter_dashboard.session import Sessions
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_dashboard.store import Stores, Watched
    from zae_limiter_ops.views.advice import GivenOptions
    from zae_limiter_ops.views.names import UnknownName


ROWS = 50  # of a page of a resource
FOUND = 100  # entities that a search lists
TOP = 25
LASTS = ("24h", "7d", "30d")
MAX_FIELDS = 50
SERVICE_UNAVAILABLE = 503
MAX_TOKEN_BODY = 1000  # characters; a token has 43


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in plain values."""

    namespace: str
    path: str
    query: dict[str, str]
    form: dict[str, str]
    headers: Mapping[str, str]
    is_post: bool

    @property
    def is_live(self) -> bool:
        """Whether only the live part of a page is asked for."""
        return self.path.endswith("/live")

    def entity_id(self) -> str:
        return check_entity_id(self.query.get("id", ""))


Handler = Callable[[Ask], Response]


class PageRoutes:
    """The pages of one server."""

    def __init__(
        self,
        stores: Stores,
        settings: DashboardSettings,
        sessions: Sessions,
        given: GivenOptions,
        namespace: str,
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._sessions = sessions
        self._given = given
        self._namespace = namespace
        self._templates = environment()
        self._live = LiveParts()

    # --- around every page

    def endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a route that runs the handler in a thread; errors of the store become messages."""

        async def answer(request: Request) -> Response:
            form: dict[str, str] = {}
            if request.method == "POST":
                body = await _body_of(request)
                if body is None:
                    return Response(status_code=400)
                try:
                    form = _form_in(body)
                except ValueError:
                    return PlainTextResponse(f"a form has at most {MAX_FIELDS} fields\n", 400)
            ask = Ask(
                namespace=request.path_params.get("namespace", self._namespace),
                path=request.url.path,
                query=dict(request.query_params),
                form=form,
                headers=request.headers,
                is_post=request.method == "POST",
            )
            return await run_in_threadpool(self._timed_answer, handler, ask)

        return answer

    def _timed_answer(self, handler: Handler, ask: Ask) -> Response:
        """Return the answer with its time and its CPU time, for the tools of a browser."""
        started, cpu_started = time.perf_counter(), time.thread_time()
        answer = self._answer(handler, ask)
        total_ms = (time.perf_counter() - started) * 1000
        cpu_ms = (time.thread_time() - cpu_started) * 1000
        answer.headers["Server-Timing"] = f"cpu;dur={cpu_ms:.1f}, total;dur={total_ms:.1f}"
        return answer

    def _answer(self, handler: Handler, ask: Ask) -> Response:
        try:
            return handler(ask)
        except ZAELimiterError as error:
            problem = problem_of(error, self._given)
            template = "problem_part.html" if ask.is_live else "problem.html"
            # A live part is swapped in with its message, and the next refresh tries again.
            status = 200 if ask.is_live else problem.status
            retries = problem.status == SERVICE_UNAVAILABLE and not ask.is_post
            return self._html(
                template,
                ask,
                status=status,
                problem=problem,
                retries=retries,
                address=ask.path + (f"?{urlencode(ask.query)}" if ask.query else ""),
            )

    def _html(self, template: str, ask: Ask, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._render(template, ask, **values), status)

    def _render(self, template: str, ask: Ask, **values: Any) -> str:
        base = f"/n/{ask.namespace}"
        return self._templates.get_template(template).render(
            namespace=ask.namespace,
            base=base,
            path=ask.path,
            link=lambda page, /, **query: (
                f"{base}/{page}" + (f"?{urlencode(query)}" if query else "")
            ),
            allow_edit=self._settings.allow_edit,
            levels=LEVELS,
            **values,
        )

    def _page_or_part(
        self, ask: Ask, template: str, part: str, read: Callable[[], dict[str, Any]]
    ) -> Response:
        """Render a page, or only its live part, which is made at most every two seconds."""
        address = f"{ask.path}?{urlencode(sorted(ask.query.items()))}"
        if ask.is_live:
            text = self._live.get(address, lambda: self._render(part, ask, **read()))
            return HTMLResponse(text)
        live_query = urlencode(ask.query)
        live_url = f"{ask.path}/live" + (f"?{live_query}" if live_query else "")
        return self._html(template, ask, live_url=live_url, **read())

    # --- session

    def shell(self, _request: Request) -> Response:
        """Return a page without data, whose script exchanges the token for a session."""
        return HTMLResponse(self._templates.get_template("shell.html").render())

    async def session(self, request: Request) -> Response:
        """Exchange a token for a cookie, which scripts cannot read and other sites do not send."""
        body = await _body_of(request)
        token = None if body is None else _token_in(body)
        secret = None if token is None else self._sessions.open(token)
        if secret is None:
            return JSONResponse({"error": "the token is wrong"}, 401)
        answer = JSONResponse({"next": f"/n/{self._namespace}/overview"})
        answer.set_cookie(
            self._sessions.cookie_name,
            secret,
            path="/",
            secure=self._settings.is_secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def end_session(self, request: Request) -> Response:
        """End the session of this browser."""
        self._sessions.close(session_cookie(request.headers, self._sessions))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(self._sessions.cookie_name, path="/")
        return answer

    def home(self, ask: Ask) -> Response:
        """Lead to the overview of the namespace of the command."""
        return RedirectResponse(f"/n/{ask.namespace}/overview", 303)

    # --- overview

    def overview(self, ask: Ask) -> Response:
        return self._page_or_part(
            ask, "overview.html", "overview_part.html", lambda: self._read_overview(ask)
        )

    def _read_overview(self, ask: Ask) -> dict[str, Any]:
        watched = self._stores.watch(ask.namespace)
        if ask.query.get("history") == "read":
            watched.history.request()
        by_day = ask.query.get("span") == "days"
        if by_day:
            watched.history.request(DAYS * 24)
        board = watched.keeper.board()
        chosen = board.selection
        fresh = watched.keeper.refreshed(chosen.rows, watched.limits_in_force)
        overview = overview_of(chosen, fresh.rows, watched)
        now_ms = watched.repository.charging.clock()
        history = watched.history
        points = history.daily(now_ms) if by_day else history.hourly(now_ms)
        chart = CallsChart.of("day" if by_day else "hour", points) if history.is_read else None
        return {
            "board": board,
            "unreadable": self._unreadable(board),
            "overview": overview,
            "chart": chart,
            "is_history_awaited": history.is_awaited(board.buckets),
            "by_day": by_day,
            "health": watched.health,
            "changes": watched.changes,
            "audit_command": self._given.command("audit", "list"),
            "figures": _figures(
                watched,
                board.started_ms,
                fresh.units,
                now_ms,
                sources=len({row.bucket for row in chosen.rows}),
            ),
        }

    # --- resources

    def resources(self, ask: Ask) -> Response:
        return self._page_or_part(
            ask, "resources.html", "resources_part.html", lambda: self._read_resources(ask)
        )

    def _read_resources(self, ask: Ask) -> dict[str, Any]:
        watched = self._stores.watch(ask.namespace)
        board = watched.keeper.board()
        names = sorted({*board.by_resource, *watched.resources()})
        lines = [
            {
                "name": name,
                "buckets": board.bucket_counts.get(name, 0),
                "limited": board.limited_counts.get(name, 0),
                "close": board.close_counts.get(name, 0),
            }
            for name in names
        ]
        now_ms = watched.repository.charging.clock()
        figures = _figures(watched, board.started_ms, 0, now_ms)
        unreadable = self._unreadable(board)
        return {"board": board, "lines": lines, "figures": figures, "unreadable": unreadable}

    def resource(self, ask: Ask) -> Response:
        check_resource(ask.query.get("name", ""))
        return self._page_or_part(
            ask, "resource.html", "resource_part.html", lambda: self._read_resource(ask)
        )

    def _read_resource(self, ask: Ask) -> dict[str, Any]:
        """Read the levels that are shown; for the whole page also defaults, mode and orders."""
        watched, name = self._stores.watch(ask.namespace), ask.query["name"]
        levels = self._read_resource_levels(ask)
        if ask.is_live:
            return levels
        return {
            **levels,
            "sorts": tuple(SORTS),
            "mode": watched.repository.get_mode(name),
            "defaults": watched.repository.get_resource_defaults(name),
        }

    def _read_resource_levels(self, ask: Ask) -> dict[str, Any]:
        watched = self._stores.watch(ask.namespace)
        name, search = ask.query["name"], ask.query.get("q", "")
        sort = ask.query.get("sort", DEFAULT_SORT)
        sort = sort if sort in SORTS else DEFAULT_SORT
        board = watched.keeper.board()
        found = matching(watched.keeper.sorted_rows(board, name, sort), search)
        if not found and not board.complete:  # the first rows need not wait for the listing
            found = matching(watched.keeper.first_rows(name, ROWS), search)
        pages = max(1, -(-len(found) // ROWS))
        number = min(max(1, _whole(ask.query.get("page"), 1)), pages)
        on_page = found[(number - 1) * ROWS : number * ROWS]
        fresh = watched.keeper.refreshed(on_page, watched.limits_in_force)
        shown = watched.with_modes(fresh.rows)
        now_ms = watched.repository.charging.clock()
        return {
            "name": name,
            "search": search,
            "sort": sort,
            "rows": shown,
            "found": len(found),
            "page": number,
            "pages": pages,
            "board": board,
            "unreadable": self._unreadable(board, name),
            "figures": _figures(
                watched,
                board.started_ms,
                fresh.units,
                now_ms,
                sources=len({row.bucket for row in shown}),
            ),
        }

    def _unreadable(self, board: Board, resource: str | None = None) -> list[dict[str, str]]:
        """Return the buckets that could not be read, with the commands that replace them."""
        return [
            {
                "entity_id": entity_id,
                "resource": name,
                "command": self._given.command("bucket", "reset", entity_id, name),
            }
            for entity_id, name in board.unreadable
            if resource in (None, name)
        ]

    # --- entities

    def find(self, ask: Ask) -> Response:
        """Lead to an entity, or list the entities whose ids contain a text."""
        search = ask.query.get("q", "").strip()
        watched = self._stores.watch(ask.namespace)
        board = watched.keeper.board()
        found = sorted({row.entity_id for row in matching(board.rows, search)}) if search else []
        if search and (search in found or watched.entity_or_none(search) is not None):
            return RedirectResponse(f"/n/{ask.namespace}/entity?{urlencode({'id': search})}", 303)
        return self._html(
            "find.html", ask, search=search, found=found[:FOUND], count=len(found), board=board
        )

    def entity(self, ask: Ask) -> Response:
        entity_id = ask.entity_id()
        if ask.is_live:
            return self._page_or_part(
                ask, "", "entity_part.html", lambda: self._read_levels(ask, entity_id)
            )
        watched = self._stores.watch(ask.namespace)
        window = ask.query.get("window", "hourly")
        live_url = f"{ask.path}/live?{urlencode({'id': entity_id})}"
        return self._html(
            "entity.html",
            ask,
            live_url=live_url,
            page=entity_page(watched.repository, entity_id),
            usage=draw_usage(watched.repository, window, entity_id=entity_id),
            window=window,
            windows=tuple(SPANS),
            **self._read_levels(ask, entity_id),
        )

    def _read_levels(self, ask: Ask, entity_id: str) -> dict[str, Any]:
        watched = self._stores.watch(ask.namespace)
        rows, units_of_changed = entity_levels(watched, entity_id)
        now_ms = watched.repository.charging.clock()
        buckets = {row.bucket for row in rows}
        own = sum(bucket[0] == entity_id for bucket in buckets)
        # The entity's own buckets are found by an index and read consistently, at twice the price.
        units = (1 + 2 * own + len(buckets) - own) * READ_UNITS_PER_SHOWN + units_of_changed
        figures = _figures(watched, now_ms, units, now_ms, sources=len(buckets))
        return {"entity_id": entity_id, "rows": rows, "figures": figures}

    def explain(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        entity_id, resource = ask.entity_id(), check_resource(ask.query.get("resource", ""))
        amounts = ask.query.get("amounts", "")
        try:
            asked = parse_amounts(amounts)
            found = explain(watched.repository, entity_id, resource, asked, self._given)
        except ValidationError as error:
            return self._html("explain.html", ask, explanation=None, problem=str(error))
        options = [word for each in amount_words(asked) for word in ("-c", each)]
        command = self._given.command("explain", entity_id, resource, options=options)
        template = "explain_part.html" if "hx-request" in ask.headers else "explain.html"
        return self._html(template, ask, explanation=found, problem=None, command=command)

    # --- limits, manifests, namespaces

    def limits(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        chosen, cursor = ask.query.get("resource") or None, ask.query.get("cursor") or None
        stored = stored_limits(watched.repository, chosen, cursor)
        return self._html("limits.html", ask, stored=stored)

    def manifest(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        named, text, source = self._settings.manifest, ask.form.get("text"), "the typed text"
        if text is None and named is not None and "named" in ask.query:
            try:
                text, source = read_named_manifest(named), str(named)
            except OSError as error:
                raise ValidationError("manifest", str(named), error.strerror or "") from None
        report = None if text is None else compare_manifest(watched.repository, text, source)
        return self._html(
            "manifest.html", ask, text=text or "", named=named, source=source, report=report
        )

    def namespaces(self, ask: Ask) -> Response:
        return self._html("namespaces.html", ask, listed=self._stores.namespaces())

    # --- usage

    def usage(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        last, by, resource = _usage_query(ask)
        costs_units = watched.keeper.refresh_units is not None
        # Rankings read the hours of all entities, which costs units where reads do.
        is_wanted = not costs_units or bool(ask.query)
        repository = watched.repository
        ranking = None
        if is_wanted:
            ranking = repository.get_top_usage(by, last, resource=resource, limit=TOP)
            _check_ranking(repository, ranking, resource)
        form = ask.path.rpartition(".")[2]
        if ranking is not None and form == "csv":
            text = io.StringIO()
            write_csv(entity_columns(ranking.consumers, "entity"), ranking.consumers, text)
            return _download(text.getvalue(), "text/csv", "usage.csv")
        if ranking is not None and form == "json":
            columns = entity_columns(ranking.consumers, "entity")
            document = {
                "by": ranking.by,
                "start_time": ranking.start_time,
                "end_time": ranking.end_time,
                "consumers": [json_of(columns, usage) for usage in ranking.consumers],
                "parents": [json_of(columns, usage) for usage in ranking.parents],
            }
            return _download(json.dumps(document, indent=2), "application/json", "usage.json")
        drawn = None
        if ranking is not None and resource is not None:
            drawn = draw_usage(repository, "hourly", resource=resource)
        usages = [*ranking.consumers, *ranking.parents] if ranking else []
        names = sorted({name for usage in usages for name in usage.counters})
        currencies = {name: unit for usage in usages for name, unit in usage.currencies.items()}
        return self._html(
            "usage.html",
            ask,
            ranking=ranking,
            last=last,
            lasts=LASTS,
            by=by,
            resource=resource,
            resources=repository.list_resources(),
            limit_names=names,
            labels={name: money_label(name, currencies.get(name)) for name in names},
            usage=drawn,
            export=urlencode({k: v for k, v in ask.query.items() if v} or {"last": last}),
        )

    # --- actions

    def action(self, ask: Ask) -> Response:
        """Show the form of an action, its preview, or its result."""
        if not self._settings.allow_edit:
            return self._html("read_only.html", ask, status=403)
        name = ask.path.rpartition("/")[2]
        action = ACTIONS.get(name)
        if action is None:
            raise ValidationError("action", name, "is unknown")
        watched = self._stores.watch(ask.namespace)
        if not ask.is_post and name != "delete-limits":
            return self._form(ask, watched, name, ask.query)
        # A deletion has nothing to fill in, so that its preview comes first.
        fields = ask.form if ask.is_post else ask.query
        is_conflict = False
        try:
            if ask.is_post and fields.get("step") == "confirm":
                principal = self.principal(ask.headers)
                done = action.perform(watched.repository, fields, principal)
                self._live.clear()
                watched.forget(fields.get("entity", ""))
                return self._html(
                    "done.html", ask, done=done, fields=fields, principal=principal, name=name
                )
            preview = action.preview(
                ActionPlace(watched.repository, watched.keeper.board()), fields
            )
        except LimitsChangedError as error:
            if name != "delete-limits":
                return self._form(
                    ask, watched, name, fields, status=409, problem=str(error), is_conflict=True
                )
            is_conflict = True
            preview = action.preview(
                ActionPlace(watched.repository, watched.keeper.board()), fields
            )
        except ValidationError as error:
            if name == "delete-limits":
                raise
            return self._form(ask, watched, name, fields, status=400, problem=str(error))
        return self._html(
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

    def _form(
        self,
        ask: Ask,
        watched: Watched,
        name: str,
        fields: Mapping[str, str],
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
        return self._html(
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


async def _body_of(request: Request) -> str | None:
    """Return the body of a request as text; None if the client has hung up."""
    try:
        return (await request.body()).decode("utf-8", "replace")
    except ClientDisconnect:
        return None


def _form_in(body: str) -> dict[str, str]:
    """Return the fields of a form; raise ValueError if there are too many."""
    return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))


def _token_in(body: str) -> str | None:
    """Return the token that a body has as JSON; None if it has none. Anybody may send one."""
    try:
        found = parse_bounded(body, longest=MAX_TOKEN_BODY)
    except ValueError:
        return None
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, str) else None


def _unknown(repository: SyncRepository, fields: Fields) -> list[UnknownName]:
    """Return the names of a change that were never seen."""
    parent = unknown_names(repository, fields.get("parent"), None)
    return unknown_names(repository, fields.get("entity"), fields.get("resource")) + parent


def _last_change(watched: Watched, level: Level) -> AuditEvent | None:
    """Return the newest change of a configuration level; None if none is logged."""
    events = watched.repository.get_audit_events(level.subject, limit=1)
    return events[0] if events else None


def _figures(
    watched: Watched, read_ms: int, units: float, now_ms: int, *, sources: int = 0
) -> dict[str, Any]:
    """Return the age of the figures, and what a refresh costs.

    ``units`` are the read units of the levels, to which the check of the namespace is added.
    ``sources`` is the number of buckets whose configuration level is read with each listing.
    """
    costs_units, listing = watched.keeper.refresh_units is not None, watched.keeper.listing_units
    if listing is not None:
        subjects = watched.changes.subjects or 0
        listing += subjects * READ_UNITS_PER_SUBJECT + sources * READ_UNITS_PER_SOURCE
    checks = READ_UNITS_PER_CHECK * REFRESH_S / watched.check_s
    return {
        "listed_ms": read_ms,
        "levels_ms": now_ms,
        "age_s": max(0, now_ms - read_ms) // 1000,
        "refresh_units": units + checks if costs_units else None,
        "listing_units": listing,
    }


def _usage_query(ask: Ask) -> tuple[str, str | None, str | None]:
    last = ask.query.get("last", LASTS[0])
    resource = ask.query.get("resource") or None
    if resource is not None:
        check_resource(resource)
    return last if last in LASTS else LASTS[0], ask.query.get("by") or None, resource


def _check_ranking(repository: SyncRepository, ranking: UsageRanking, resource: str | None) -> None:
    """Raise if nothing was ranked because of an unknown limit or resource."""
    if problem := unused_limit(ranking.by, ranking.limit_names):
        raise ValidationError("rank by", ranking.by, problem)
    if not ranking.limit_names and (problem := unknown_resource([repository], resource)):
        raise ValidationError("resource", resource, problem)


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else default


def _download(text: str, kind: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return Response(text, media_type=kind, headers={"Content-Disposition": disposition})
