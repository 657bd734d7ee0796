"""The user pages: list, creation, and hit-and-runs."""

from typing import Any

from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import multiplier_of, page_number, read_form
from tracker.admin.pages.rendering import done, render
from tracker.admin.pages.user import ratio
from tracker.errors import ClientError
from tracker.operations import pending_hit_and_runs

PAGE = 50


class UserPages:
    """Handlers of /users. A passkey is shown once, after its user is created."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._users = context.store.users

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/users", self.show),
            web.get("/users/owing", self.hit_and_runs),
            web.get("/users/pending", self.pending),
            web.post("/users", self.add),
            web.post("/users/multipliers", self.set_multipliers),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """All users by ID; ``id`` in the query redirects to that user."""
        wanted = request.query.get("id", "").strip()
        if wanted and (wanted.isascii() and wanted.isdigit() and await self._users.passkey_of(wanted)):
            raise web.HTTPSeeOther(f"/users/{wanted}")
        return await self._page(request, missing=wanted[:20])

    async def _page(self, request: web.Request, missing: str = "", error: str = "") -> web.Response:
        number = page_number(request.query.get("page", ""))
        first = (number - 1) * PAGE
        total = await self._users.count()
        upload, download = await self._context.store.multipliers.get()
        variables = {
            "accounts": self._context.settings.users.private,
            "upload_multiplier": upload,
            "download_multiplier": download,
            "now": self._context.clock(),
            "users": await self._users.page(first, PAGE),
            "missing": missing,
            "error": error,
            **_pages("/users", number, total),
            "hit_and_run_users": await self._users.hit_and_run_count(),
            "ratio": ratio,
        }
        return render(request, "users.html", variables, status=422 if error else 404 if missing else 200)

    async def hit_and_runs(self, request: web.Request) -> web.Response:
        number = page_number(request.query.get("page", ""))
        total = await self._users.hit_and_run_count()
        variables = {
            "accounts": self._context.settings.users.private,
            "hit_and_runs": await self._users.hit_and_runs((number - 1) * PAGE, PAGE),
            "rules": self._context.settings.users,
            **_pages("/users/owing", number, total),
            "registered": await self._users.count(),
            "hit_and_run_users": total,
        }
        return render(request, "hit_and_runs.html", variables)

    async def pending(self, request: web.Request) -> web.Response:
        """Torrents that become hit-and-runs unless their users come back."""
        number = page_number(request.query.get("page", ""))
        total = await self._context.store.hit_and_runs.pending_count()
        variables = {
            "accounts": self._context.settings.users.private,
            "pending": await pending_hit_and_runs(self._context.store, (number - 1) * PAGE, PAGE),
            "rules": self._context.settings.users,
            "now": self._context.clock(),
            **_pages("/users/pending", number, total),
            "hit_and_run_users": await self._users.hit_and_run_count(),
        }
        return render(request, "hit_and_runs_pending.html", variables)

    async def add(self, request: web.Request) -> web.Response:
        """Creates a user and shows the passkey once."""
        form = await read_form(request)
        try:
            user = await self._users.add(form.text("user_id") or None, can_leech=form.ticked("can_leech"))
        except ClientError as error:
            return await self._page(request, error=str(error))
        urls = announce_urls(self._context.listening, self._context.udp, request.host, user.passkey)
        return render(
            request,
            "user_passkey.html",
            {"user": user, "announce_urls": urls, "message": f"User {user.user_id} created."},
        )

    async def set_multipliers(self, request: web.Request) -> web.Response:
        """Replaces the multipliers for everybody."""
        form, now = await read_form(request), self._context.clock()
        try:
            upload = multiplier_of(form, "upload_multiplier", now)
            await self._context.store.multipliers.set(upload, multiplier_of(form, "download_multiplier", now))
        except ClientError as error:
            return await self._page(request, error=str(error))
        return done(request, "/users", "saved")


def _pages(path: str, number: int, total: int) -> dict[str, Any]:
    first = (number - 1) * PAGE
    return {
        "first": first + 1,
        "total": total,
        "previous_url": f"{path}?page={number - 1}" if number > 1 else "",
        "next_url": f"{path}?page={number + 1}" if first + PAGE < total else "",
    }


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    return UserPages(context).routes()
