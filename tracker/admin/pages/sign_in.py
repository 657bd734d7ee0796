"""Signing in, with a token or a one-time link, and signing out."""

from aiohttp import web

from tracker.admin.auth.auth import ACCESS, SIGN_IN, too_many
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import check_size
from tracker.admin.http.cookies import cookie_of, delete_cookies, set_cookie
from tracker.admin.http.form_body import read_form_body
from tracker.admin.pages.rendering import done, render
from tracker.store.access.tokens import Session
from tracker.system.logger import Logger

log = Logger("tracker.admin")

_MAX_BYTES = 4096
"""Max size of a sign-in form, which needs no authentication."""


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    tokens, seconds = context.store.tokens, context.settings.admin.session_seconds

    async def show(request: web.Request) -> web.Response:
        return render(request, "sign_in.html", {"failed": ""})

    # This form has no CSRF token, because no session exists yet. Its Origin is checked like that of every change, and a
    # sign-in always creates a new session, which prevents session fixation.
    async def sign_in(request: web.Request) -> web.Response:
        check_size(request, _MAX_BYTES)
        form = await read_form_body(request.clone(client_max_size=_MAX_BYTES))
        text, link = form.get("token"), form.get("link")
        signed_in: tuple[Session, str] | None = None
        if isinstance(link, str) and link:
            signed_in = await tokens.sign_in_by_link(link, seconds)
        elif isinstance(text, str):
            signed_in = await tokens.sign_in_by_token(text.strip(), seconds, request.app[ACCESS].address_of(request))
        if signed_in is None:
            if wait := request.app[ACCESS].note_failure(request):
                raise too_many(wait)
            return render(request, "sign_in.html", {"failed": "link" if link else "token"}, status=403)
        await tokens.sign_out(cookie_of(request))
        log.info("signed in", by=signed_in[0].name, address=request.remote or "unix")
        response = done(request, "/")
        set_cookie(request, response, signed_in[1], seconds)
        return response

    async def sign_out(request: web.Request) -> web.Response:
        await tokens.sign_out(cookie_of(request))
        response = done(request, SIGN_IN)
        delete_cookies(response)
        return response

    return [web.get(SIGN_IN, show), web.post(SIGN_IN, sign_in), web.post("/sign-out", sign_out)]
