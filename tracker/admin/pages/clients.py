"""The page of client software: joined and rejected clients, the allow-list and the deny list."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import cursor_number, page_number, read_form
from tracker.admin.pages.rendering import done, render
from tracker.errors import ClientError
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.store.stats.client_software import MAX_MEMBERS, Outcome, by_program, parted, program_of
from tracker.store.stats.slices import ALL_TIME, MONTHS_KEPT, month_start

PAGE = 25
_LIST_PAGE = 200
_EMPTY_FORMS = dict.fromkeys(("error", "prefix", "name", "deny_error", "denied_prefix", "reason"), "")


class ClientPages:
    """Handlers."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._allow_list = context.store.allow_list
        self._deny_list = context.store.deny_list
        self._client_software = context.store.client_software

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/clients", self.show),
            web.get("/clients/program", self.program),
            web.post("/clients/allow", self.allow),
            web.post("/clients/disallow", self.disallow),
            web.post("/clients/deny", self.deny),
            web.post("/clients/undeny", self.undeny),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """The query has ``period`` (all or YYYY-MM), and ``page`` and ``refused``, pages of the two leaderboards."""
        return await self._page(request)

    async def program(self, request: web.Request) -> web.Response:
        """The versions of a program, and its refusals. The query has ``name`` and ``period``."""
        name, period = request.query.get("name", ""), self._period(request.query.get("period", ""))
        versions, refused = [
            [
                row
                for row in await self._client_software.top(kind, period, MAX_MEMBERS)
                if program_of(row[0]) == name
            ]
            for kind in ("joins", "failures")
        ]
        if not versions and not refused:
            raise Problem(404, detail="no such program in this period")
        variables = {
            "name": name,
            "period": period,
            "all_time": ALL_TIME,
            "versions": versions,
            "joined": sum(count for _, count in versions),
            "refused": [(*parted(member), count) for member, count in refused],
        }
        return render(request, "program.html", variables)

    async def _page(self, request: web.Request, form: Mapping[str, str] | None = None) -> web.Response:
        """``form`` holds an error and the values of the form that it belongs to."""
        period = self._period(request.query.get("period", ""))
        joins, refused = (page_number(request.query.get(which, "")) for which in ("page", "refused"))
        cursor, denied_cursor = (
            cursor_number(request.query.get(which, "")) for which in ("cursor", "denied_cursor")
        )
        after, allowed = await self._allow_list.page(cursor, _LIST_PAGE)
        denied_after, denied = await self._deny_list.page(denied_cursor, _LIST_PAGE)
        variables = {
            "period": period,
            "months": self._months(),
            "all_time": ALL_TIME,
            "joins": await self._board("joins", period, joins, page=joins, refused=refused),
            "failures": await self._board("failures", period, refused, page=joins, refused=refused),
            "allow_list": self._context.settings.clients.allow_list,
            "allowed": sorted((format_prefix(raw), name) for raw, name in allowed),
            "more_allowed": f"/clients?{urlencode({'cursor': after})}#allowed" if after else "",
            "deny_list": self._context.settings.clients.deny_list,
            "denied": sorted((format_prefix(raw), reason) for raw, reason in denied),
            "more_denied": f"/clients?{urlencode({'denied_cursor': denied_after})}#denied"
            if denied_after
            else "",
            **_EMPTY_FORMS,
            **(form or {}),
        }
        return render(request, "clients.html", variables, status=422 if form else 200)

    def _period(self, text: str) -> str:
        return text if text in self._months() else ALL_TIME

    def _months(self) -> list[str]:
        """The months with leaderboards, the current one first."""
        now = self._context.clock()
        return [month_start(now, -back).strftime("%Y-%m") for back in range(MONTHS_KEPT)]

    async def _board(self, kind: Outcome, period: str, number: int, **pages: int) -> dict[str, Any]:
        """A page of a leaderboard, with the sum of all its entries."""
        board = await self._client_software.top(kind, period, MAX_MEMBERS)
        if kind == "joins":
            board = by_program(board)
        first = (number - 1) * PAGE

        def at(other: int) -> str:
            which = "page" if kind == "joins" else "refused"
            return f"/clients?{urlencode({'period': period, **pages, which: other})}#{kind}"

        return {
            "rows": board[first : first + PAGE],
            "max": board[0][1] if board else 0,
            "sum": sum(count for _, count in board),
            "first": first + 1,
            "total": len(board),
            "previous_url": at(number - 1) if number > 1 else "",
            "next_url": at(number + 1) if first + PAGE < len(board) else "",
        }

    async def allow(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        prefix, name = form.text("prefix"), form.text("name")
        try:
            await self._allow_list.allow(parse_prefix(prefix), name)
        except ClientError as error:
            return await self._page(request, {"error": str(error), "prefix": prefix, "name": name})
        return done(request, "/clients", "added")

    async def disallow(self, request: web.Request) -> web.Response:
        prefix = parse_prefix((await read_form(request)).text("prefix"))
        if not await self._allow_list.disallow(prefix):
            return await self._page(request, {"error": "that prefix is not on the allow-list"})
        return done(request, "/clients", "removed")

    async def deny(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        prefix, reason = form.text("prefix"), form.text("reason")
        try:
            await self._deny_list.deny(parse_prefix(prefix), reason)
        except ClientError as error:
            values = {"deny_error": str(error), "denied_prefix": prefix, "reason": reason}
            return await self._page(request, values)
        return done(request, "/clients", "added")

    async def undeny(self, request: web.Request) -> web.Response:
        prefix = parse_prefix((await read_form(request)).text("prefix"))
        if not await self._deny_list.undeny(prefix):
            return await self._page(request, {"deny_error": "that prefix is not on the deny list"})
        return done(request, "/clients", "removed")
