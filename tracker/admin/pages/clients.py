"""The page of client programs: which join, which are refused why, and which are allowed at all."""

from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin import operations
from tracker.admin.desk import Desk
from tracker.admin.pages.forms import cursor_number, page_number, read_form
from tracker.admin.pages.rendering import done, render
from tracker.errors import ClientError
from tracker.store.months import ALL_TIME, MONTHS_KEPT, month_start
from tracker.store.software import MOST_MEMBERS, Outcome

PAGE = 25
_ALLOWED_PAGE = 200


class ClientPages:
    """Handlers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._clients = desk.stores.clients
        self._software = desk.stores.software

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/clients", self.show),
            web.post("/clients/allow", self.allow),
            web.post("/clients/disallow", self.disallow),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """With ``period`` (all or YYYY-MM), ``page`` and ``refused`` (pages of the two boards) in the query."""
        return await self._page(request)

    async def _page(
        self, request: web.Request, error: str = "", prefix: str = "", name: str = ""
    ) -> web.Response:
        period = self._period(request.query.get("period", ""))
        joins, refused = (page_number(request.query.get(which, "")) for which in ("page", "refused"))
        cursor = cursor_number(request.query.get("cursor", ""))
        after, allowed = await self._clients.page(cursor, _ALLOWED_PAGE)
        context = {
            "period": period,
            "months": self._months(),
            "all_time": ALL_TIME,
            "joins": await self._board("joins", period, joins, page=joins, refused=refused),
            "failures": await self._board("failures", period, refused, page=joins, refused=refused),
            "allow_list": self._desk.settings.clients.allow_list,
            "allowed": sorted((operations.shown_prefix(raw), name) for raw, name in allowed),
            "more_allowed": f"/clients?{urlencode({'cursor': after})}#allowed" if after else "",
            "error": error,
            "prefix": prefix,
            "name": name,
        }
        return render(request, "clients.html", context, status=422 if error else 200)

    def _period(self, text: str) -> str:
        return text if text in self._months() else ALL_TIME

    def _months(self) -> list[str]:
        """Those that have boards, the current one first."""
        now = self._desk.clock()
        return [month_start(now, -back).strftime("%Y-%m") for back in range(MONTHS_KEPT)]

    async def _board(self, kind: Outcome, period: str, number: int, **pages: int) -> dict[str, Any]:
        """A page of a leaderboard, with the shares of all that it holds: boards are short."""
        board = await self._software.top(kind, period, MOST_MEMBERS)
        first = (number - 1) * PAGE

        def at(other: int) -> str:
            which = "page" if kind == "joins" else "refused"
            return f"/clients?{urlencode({'period': period, **pages, which: other})}#{kind}"

        return {
            "rows": board[first : first + PAGE],
            "most": board[0][1] if board else 0,
            "sum": sum(count for _, count in board),
            "first": first + 1,
            "total": len(board),
            "earlier": at(number - 1) if number > 1 else "",
            "later": at(number + 1) if first + PAGE < len(board) else "",
        }

    async def allow(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        prefix, name = form.text("prefix"), form.text("name")
        try:
            await self._clients.allow(operations.parse_prefix(prefix), name)
        except ClientError as error:
            return await self._page(request, str(error), prefix, name)
        return done(request, "/clients", "added")

    async def disallow(self, request: web.Request) -> web.Response:
        prefix = operations.parse_prefix((await read_form(request)).text("prefix"))
        if not await self._clients.disallow(prefix):
            return await self._page(request, "that prefix was not on the list")
        return done(request, "/clients", "removed")


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return ClientPages(desk).routes()
