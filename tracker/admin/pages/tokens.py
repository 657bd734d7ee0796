"""The page of tokens, for scope full only. A new token is shown once and not stored."""

from aiohttp import web

from tracker.admin.auth.auth import IDENTITY, require_full
from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import read_form
from tracker.admin.pages.rendering import done, render
from tracker.errors import ClientError
from tracker.store.access.tokens import NAME_LENGTH, Scope


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    tokens = context.store.tokens

    async def page(
        request: web.Request, *, secret: str = "", error: str = "", name: str = ""
    ) -> web.Response:
        variables = {
            "tokens": await tokens.list(),
            "now": context.clock(),
            "secret": secret,
            "error": error,
            "name": name,
            "max_name_length": NAME_LENGTH,
        }
        return render(request, "tokens.html", variables, status=422 if error else 200)

    async def show(request: web.Request) -> web.Response:
        require_full(request[IDENTITY])
        return await page(request)

    async def create(request: web.Request) -> web.Response:
        """No redirect, because only this response contains the token. A resend fails: the name is taken."""
        form = await read_form(request)
        name = form.text("name")
        scope: Scope = "full" if form.text("scope") == "full" else "read"
        try:
            _, secret = await tokens.create(name, scope)
        except ClientError as error:
            return await page(request, error=str(error), name=name)
        return await page(request, secret=secret, name=name)

    async def revoke(request: web.Request) -> web.Response:
        try:
            await tokens.revoke(request.match_info["id"])
        except ClientError as error:
            raise Problem(404, detail=str(error)) from error
        return done(request, "/tokens", "revoked")

    return [
        web.get("/tokens", show),
        web.post("/tokens", create),
        web.post("/tokens/{id:[0-9a-f]+}/revoke", revoke),
    ]
