"""The page of client software: joined and rejected clients, the allow-list and the deny list."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, cursor_number, page_number, turned
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.errors import ClientError
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.store.access.client_lists import AllowList, DenyList
from tracker.store.stats.client_software import MAX_MEMBERS, Outcome, by_program, parted, program_of
from tracker.store.stats.slices import ALL_TIME, MONTHS_KEPT
from tracker.store.work.periods import months_ago

PAGE = 25
_LIST_PAGE = 200


class ClientPages(Pages):
    @property
    def _lists(self) -> Mapping[str, AllowList | DenyList]:
        return {"allowed": self._store.allow_list, "denied": self._store.deny_list}

    @get("/clients/program", "program.html")
    async def program(self, request: web.Request) -> dict[str, Any]:
        """The versions of a program, and its refusals. The query has ``name`` and ``period``."""
        name, period = request.query.get("name", ""), self._period(request.query.get("period", ""))
        top = self._store.client_software.top
        versions, refused = [
            [row for row in await top(kind, period, MAX_MEMBERS) if program_of(row[0]) == name]
            for kind in ("joins", "failures")
        ]
        if not versions and not refused:
            raise Problem(404, detail="no such program in this period")
        return {
            "name": name,
            "period": period,
            "all_time": ALL_TIME,
            "versions": versions,
            "joined": sum(count for _, count in versions),
            "refused": [(*parted(member), count) for member, count in refused],
        }

    @get("/clients", "clients.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """The query has ``period`` (all or YYYY-MM), and ``page`` and ``refused``, pages of the two leaderboards."""
        period = self._period(request.query.get("period", ""))
        joins, refused = (page_number(request.query.get(which, "")) for which in ("page", "refused"))
        clients = self._context.settings.clients
        return {
            "period": period,
            "months": self._months(),
            "all_time": ALL_TIME,
            "joins": await self._board("joins", period, page=joins, refused=refused),
            "failures": await self._board("failures", period, page=joins, refused=refused),
            "enabled": {"allowed": clients.allow_list, "denied": clients.deny_list},
            "lists": {which: await self._listed(request, which) for which in self._lists},
            "refused_list": _list_of(request) if request.method == "POST" else "",
        }

    async def _listed(self, request: web.Request, which: str) -> dict[str, Any]:
        """A page of a list, and the address of the next."""
        cursor = cursor_number(request.query.get(f"{which}_cursor", ""))
        after, found = await self._lists[which].page(cursor, _LIST_PAGE)
        more = f"/clients?{urlencode({f'{which}_cursor': after})}#{which}"
        return {"rows": sorted((format_prefix(prefix), text) for prefix, text in found), "more": more if after else ""}

    def _period(self, text: str) -> str:
        return text if text in self._months() else ALL_TIME

    def _months(self) -> list[str]:
        """The months with leaderboards, the current one first."""
        return months_ago(self._clock(), range(MONTHS_KEPT))

    async def _board(self, kind: Outcome, period: str, **pages: int) -> dict[str, Any]:
        """A page of a leaderboard, with the sum of all its entries."""
        board = await self._store.client_software.top(kind, period, MAX_MEMBERS)
        if kind == "joins":
            board = by_program(board)
        number = pages.pop(name := "page" if kind == "joins" else "refused")
        here = f"/clients?{urlencode({'period': period, **pages})}"
        return {
            "rows": board[(number - 1) * PAGE : number * PAGE],
            "max": board[0][1] if board else 0,
            "sum": sum(count for _, count in board),
            **turned(here, number, PAGE, len(board), name, f"#{kind}"),
        }

    @post("/clients/allow", "client.allow", errors_on="show")
    @post("/clients/deny", "client.deny", errors_on="show")
    async def add(self, request: web.Request, form: Form) -> web.Response:
        await self._lists[_list_of(request)].add(parse_prefix(form.text("prefix")), form.text("text"))
        return done(request, "/clients", "added")

    @post("/clients/disallow", "client.disallow", errors_on="show")
    @post("/clients/undeny", "client.undeny", errors_on="show")
    async def remove(self, request: web.Request, form: Form) -> web.Response:
        if not await self._lists[_list_of(request)].remove(parse_prefix(form.text("prefix"))):
            raise ClientError("that prefix is not on the list")
        return done(request, "/clients", "removed")


def _list_of(request: web.Request) -> str:
    return "denied" if request.path.endswith("deny") else "allowed"
