"""The page of tokens, for role admin only. A new token is shown once and not stored."""

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, read_form
from tracker.admin.pages.rendering import done, render
from tracker.errors import ClientError
from tracker.store.access.tokens import NAME_LENGTH, ROLES, Token
from tracker.store.schema.multipliers import parse_end


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    tokens = context.store.tokens

    async def page(request: web.Request, *, secret: str = "", error: str = "", name: str = "") -> web.Response:
        variables = {
            "tokens": await tokens.list(),
            "roles": ROLES,
            "secret": secret,
            "error": error,
            "name": name,
            "max_name_length": NAME_LENGTH,
        }
        return render(request, "tokens.html", variables, status=422 if error else 200)

    async def show(request: web.Request) -> web.Response:
        return await page(request)

    async def create(request: web.Request) -> web.Response:
        """No redirect, because only this response contains the token. A resend fails: the name is taken."""
        form = await read_form(request)
        try:
            token, secret = await create_of(form)
        except ClientError as error:
            return await page(request, error=str(error), name=form.text("name"))
        request[CHANGE].created("token", token.token_id)
        return await page(request, secret=secret, name=token.name)

    async def create_of(form: Form) -> tuple[Token, str]:
        role = next((role for role in ROLES if role == form.text("role")), ROLES[0])
        expires = parse_end(form.text("expires"), context.clock())
        addresses = form.text("addresses").replace(",", " ").split()
        return await tokens.create(form.text("name"), role, expires=expires, addresses=addresses)

    async def revoke(request: web.Request) -> web.Response:
        try:
            await tokens.revoke(request.match_info["token_id"])
        except ClientError as error:
            raise Problem(404, detail=str(error)) from error
        return done(request, "/tokens", "revoked")

    return [
        web.get("/tokens", show),
        web.post("/tokens", create),
        web.post("/tokens/{token_id:[0-9a-f]+}/revoke", revoke),
    ]
