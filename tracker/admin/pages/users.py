"""The pages of users of a private tracker: the list, a new one, and who owes time to torrents."""

from typing import Any

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.pages.addresses import announce_urls
from tracker.admin.pages.forms import page_number, read_form
from tracker.admin.pages.rendering import render
from tracker.admin.pages.user import ratio
from tracker.errors import ClientError

PAGE = 50


class UserPages:
    """Handlers of all users together. Passkeys are shown nowhere here but once, to whoever made the user."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._users = desk.stores.users

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/users", self.show),
            web.get("/users/owing", self.owing),
            web.post("/users", self.add),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """All users by id; with ``id`` in the query, on to that one."""
        wanted = request.query.get("id", "").strip()
        if wanted and (wanted.isascii() and wanted.isdigit() and await self._users.passkey_of(wanted)):
            raise web.HTTPSeeOther(f"/users/{wanted}")
        return await self._page(request, missing=wanted[:20])

    async def _page(self, request: web.Request, missing: str = "", error: str = "") -> web.Response:
        number = page_number(request.query.get("page", ""))
        first = (number - 1) * PAGE
        total = await self._users.count()
        context = {
            "private_mode": self._desk.settings.users.private,
            "users": await self._users.page(first, PAGE),
            "missing": missing,
            "error": error,
            **_pages("/users", number, total),
            "owing": await self._users.hit_and_run_count(),
            "ratio": ratio,
        }
        return render(request, "users.html", context, status=422 if error else 404 if missing else 200)

    async def owing(self, request: web.Request) -> web.Response:
        number = page_number(request.query.get("page", ""))
        total = await self._users.hit_and_run_count()
        context = {
            "private_mode": self._desk.settings.users.private,
            "debts": await self._users.hit_and_runs((number - 1) * PAGE, PAGE),
            "rules": self._desk.settings.users,
            **_pages("/users/owing", number, total),
            "registered": await self._users.count(),
            "owing": total,
        }
        return render(request, "users_owing.html", context)

    async def add(self, request: web.Request) -> web.Response:
        """Makes a user, and shows the passkey this once."""
        form = await read_form(request)
        try:
            user = await self._users.add(form.text("user_id") or None, can_leech=form.ticked("can_leech"))
        except ClientError as error:
            return await self._page(request, error=str(error))
        urls = announce_urls(self._desk.listening, request.host, user.passkey)
        return render(
            request,
            "user_passkey.html",
            {"user": user, "announce_urls": urls, "said": f"User {user.user_id} was created."},
        )


def _pages(path: str, number: int, total: int) -> dict[str, Any]:
    first = (number - 1) * PAGE
    return {
        "first": first + 1,
        "total": total,
        "earlier": f"{path}?page={number - 1}" if number > 1 else "",
        "later": f"{path}?page={number + 1}" if first + PAGE < total else "",
    }


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return UserPages(desk).routes()
