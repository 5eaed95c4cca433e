"""The pages: each parses a request, asks a view for its records, and renders them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import check_resource
from zae_limiter_dashboard.board_keeper import READ_UNITS_PER_SHOWN
from zae_limiter_dashboard.charts import CallsChart
from zae_limiter_dashboard.entity_view import entity_levels, entity_page, explain
from zae_limiter_dashboard.history import DAYS
from zae_limiter_dashboard.limits_view import compare_manifest, read_named_manifest, stored_limits
from zae_limiter_dashboard.overview import overview_of
from zae_limiter_dashboard.rows import DEFAULT_SORT, SORTS, matching
from zae_limiter_dashboard.store import (
    READ_UNITS_PER_CHECK,
    READ_UNITS_PER_SOURCE,
    READ_UNITS_PER_SUBJECT,
    REFRESH_S,
)
from zae_limiter_dashboard.usage_view import (
    SPANS,
    csv_of,
    draw_usage,
    json_text_of,
    limit_labels,
    ranking_of,
)
from zae_limiter_ops.views.amounts import amount_words, parse_amounts

if TYPE_CHECKING:
    from zae_limiter_dashboard.board import Board
    from zae_limiter_dashboard.rendering import Ask, Renderer
    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_dashboard.store import Stores, Watched
    from zae_limiter_ops.views.advice import GivenOptions

ROWS = 50  # of a page of a resource
FOUND = 100  # entities that a search lists
LASTS = ("24h", "7d", "30d")


class PageRoutes:
    """The pages that show something."""

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

    # --- overview

    def overview(self, ask: Ask) -> Response:
        return self._renderer.page_or_part(
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
        return self._renderer.page_or_part(
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
        return self._renderer.page_or_part(
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
        return self._renderer.html(
            "find.html", ask, search=search, found=found[:FOUND], count=len(found), board=board
        )

    def entity(self, ask: Ask) -> Response:
        entity_id = ask.entity_id()
        if ask.is_live:
            return self._renderer.page_or_part(
                ask, "", "entity_part.html", lambda: self._read_levels(ask, entity_id)
            )
        watched = self._stores.watch(ask.namespace)
        window = ask.query.get("window", "hourly")
        live_url = f"{ask.path}/live?{urlencode({'id': entity_id})}"
        return self._renderer.html(
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
            return self._renderer.html("explain.html", ask, explanation=None, problem=str(error))
        options = [word for each in amount_words(asked) for word in ("-c", each)]
        command = self._given.command("explain", entity_id, resource, options=options)
        template = "explain_part.html" if "hx-request" in ask.headers else "explain.html"
        return self._renderer.html(template, ask, explanation=found, problem=None, command=command)

    # --- limits, manifests, namespaces

    def limits(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        chosen, cursor = ask.query.get("resource") or None, ask.query.get("cursor") or None
        stored = stored_limits(watched.repository, chosen, cursor)
        return self._renderer.html("limits.html", ask, stored=stored)

    def manifest(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        named, text, source = self._settings.manifest, ask.form.get("text"), "the typed text"
        if text is None and named is not None and "named" in ask.query:
            try:
                text, source = read_named_manifest(named), str(named)
            except OSError as error:
                raise ValidationError("manifest", str(named), error.strerror or "") from None
        report = None if text is None else compare_manifest(watched.repository, text, source)
        return self._renderer.html(
            "manifest.html", ask, text=text or "", named=named, source=source, report=report
        )

    def namespaces(self, ask: Ask) -> Response:
        return self._renderer.html("namespaces.html", ask, listed=self._stores.namespaces())

    # --- usage

    def usage(self, ask: Ask) -> Response:
        watched = self._stores.watch(ask.namespace)
        last, by, resource = _usage_query(ask)
        costs_units = watched.keeper.refresh_units is not None
        # Rankings read the hours of all entities, which costs units where reads do.
        is_wanted = not costs_units or bool(ask.query)
        repository = watched.repository
        ranking = ranking_of(repository, by, last, resource) if is_wanted else None
        form = ask.path.rpartition(".")[2]
        if ranking is not None and form == "csv":
            return _download(csv_of(ranking), "text/csv", "usage.csv")
        if ranking is not None and form == "json":
            return _download(json_text_of(ranking), "application/json", "usage.json")
        drawn = None
        if ranking is not None and resource is not None:
            drawn = draw_usage(repository, "hourly", resource=resource)
        return self._renderer.html(
            "usage.html",
            ask,
            ranking=ranking,
            last=last,
            lasts=LASTS,
            by=by,
            resource=resource,
            resources=repository.list_resources(),
            labels=limit_labels(ranking),
            usage=drawn,
            export=urlencode({k: v for k, v in ask.query.items() if v} or {"last": last}),
        )


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


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else default


def _download(text: str, kind: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return Response(text, media_type=kind, headers={"Content-Disposition": disposition})
