"""The page of tokens, for role admin only. A new token is shown once and not stored."""

from typing import Any

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.pages.forms import Form, read_form
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.store.access.tokens import NAME_LENGTH, ROLES
from tracker.store.schema.multipliers import parse_end


class TokenPage(Pages):
    @get("/tokens", "tokens.html", role="admin")
    async def show(self, request: web.Request, secret: str = "") -> dict[str, Any]:
        return {
            "tokens": await self._store.tokens.list(),
            "roles": ROLES,
            "secret": secret,
            "name": (await read_form(request)).text("name"),
            "max_name_length": NAME_LENGTH,
        }

    @post("/tokens", "token.create", role="admin", errors_on="show")
    async def create(self, request: web.Request, form: Form) -> dict[str, Any]:
        """No redirect, because only this response contains the token. A resend fails: the name is taken."""
        role = next((role for role in ROLES if role == form.text("role")), ROLES[0])
        expires = parse_end(form.text("expires"), self._clock())
        addresses = form.text("addresses").replace(",", " ").split()
        create = self._store.tokens.create
        token, secret = await create(form.text("name"), role, expires=expires, addresses=addresses)
        request[CHANGE].created("token", token.token_id)
        return await self.show(request, secret=secret)

    @post("/tokens/{token_id:[0-9a-f]+}/revoke", "token.revoke", role="admin")
    async def revoke(self, request: web.Request, form: Form) -> web.Response:
        await self._store.tokens.revoke(request.match_info["token_id"])
        return done(request, "/tokens", "revoked")
