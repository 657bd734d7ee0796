"""Signing in with a token or a one-time link, and out again."""

from typing import Any

import structlog
from aiohttp import web

from tracker.admin.auth import ACCESS, SIGN_IN, too_many
from tracker.admin.connections import check_size
from tracker.admin.cookies import cookie_of, delete_cookies, set_cookie
from tracker.admin.desk import Desk
from tracker.admin.pages.rendering import render
from tracker.admin.posted import posted
from tracker.store.tokens import Session

log = structlog.get_logger("tracker.admin")

_MOST_BYTES = 4096
"""Of a sign-in form, which anybody may send."""


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    tokens, seconds = desk.stores.tokens, desk.settings.admin.session_seconds

    async def show(request: web.Request) -> web.Response:
        return _page(request)

    # No CSRF token guards this form, for there is no session yet that could hold one. Its origin is checked like that of
    # every change, and who signs in gets a new session whatever the browser had before: nobody can be given one.
    async def sign_in(request: web.Request) -> web.Response:
        check_size(request, _MOST_BYTES)
        form = await posted(request.clone(client_max_size=_MOST_BYTES))
        text, link = form.get("token"), form.get("link")
        signed_in: tuple[Session, str] | None = None
        if isinstance(link, str) and link:
            signed_in = await tokens.sign_in_by_link(link, seconds)
        elif isinstance(text, str):
            signed_in = await tokens.sign_in_by_token(text.strip(), seconds)
        if signed_in is None:
            if wait := request.app[ACCESS].note_failure(request):
                raise too_many(wait)
            return _page(request, "link" if link else "token", status=403)
        await tokens.sign_out(cookie_of(request))
        log.info("signed in", by=signed_in[0].name, address=request.remote or "unix")
        answer = _on_to("/")
        set_cookie(request, answer, signed_in[1], seconds)
        return answer

    async def sign_out(request: web.Request) -> web.Response:
        await tokens.sign_out(cookie_of(request))
        answer = _on_to(SIGN_IN)
        delete_cookies(answer)
        return answer

    return [
        web.get(SIGN_IN, show),
        web.post(SIGN_IN, sign_in),
        web.post("/sign-out", sign_out),
    ]


def _page(request: web.Request, failed: str = "", status: int = 200) -> web.Response:
    """``failed`` is what was no good: ``token``, ``link`` or nothing yet."""
    context: dict[str, Any] = {"failed": failed}
    return render(request, "sign_in.html", context, status=status)


def _on_to(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})
