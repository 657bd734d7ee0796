"""The settings page, the doctor page, and the page of tokens, for role admin only. A new token is shown once and not
stored."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.pages.forms import Form, read_form
from tracker.admin.pages.rendering import Pages, done, get, post, render, wants_part
from tracker.doctor import DoctorContext
from tracker.doctor.checks import run_checks
from tracker.settings.model import Settings, variable
from tracker.settings.reference import Described, describe
from tracker.store.access.tokens import NAME_LENGTH, ROLES
from tracker.store.schema.multipliers import parse_end


class SystemPages(Pages):
    @get("/settings", "settings.html")
    async def settings(self, request: web.Request) -> dict[str, Any]:
        return {
            "parts": list(_parts(self._context.settings)),
            "wanted": request.query.get("q", "")[:100],
            "last": self._context.last_reload(),
        }

    @get("/doctor")
    async def doctor(self, request: web.Request) -> web.Response:
        """Runs the checks: a few store commands."""
        checked = DoctorContext(self._store, self._context.settings, self._clock)
        findings = [finding async for finding in run_checks(checked)]
        levels = Counter(finding.level for finding in findings)
        variables = {"findings": findings, "levels": levels, "problems": self._context.problems(), "at": self._clock()}
        return render(request, "parts/findings.html" if wants_part(request) else "doctor.html", variables)


def _parts(settings: Settings) -> Iterator[tuple[str, str, list[Described], int]]:
    """(name, sentence, settings, number of those that differ from their defaults) of each section."""
    rows = describe(settings)
    for name, field in Settings.model_fields.items():
        mine = [row for row in rows if row.name.startswith(variable(name, ""))]
        changed = sum(row.value != row.default for row in mine)
        yield name, (field.default.__doc__ or "").strip(), mine, changed


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
