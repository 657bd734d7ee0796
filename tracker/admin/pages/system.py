"""The pages of the settings and of the doctor; those of tokens and of the audit log, for role admin only; signing in,
with a token or a one-time link, and signing out. A new token is shown once and not stored."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Any, get_args

from aiohttp import web

from tracker.admin.auth.auth import ACCESS, RULES, SIGN_IN
from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import check_size
from tracker.admin.http.cookies import cookie_of, delete_cookies, set_cookie
from tracker.admin.http.form_body import read_form_body
from tracker.admin.pages.forms import Form, clean, exports_of, first_and_next
from tracker.admin.pages.rendering import Pages, done, get, input_time, post, render
from tracker.doctor.checks import run_checks
from tracker.errors import ClientError
from tracker.settings.model import Settings, variable
from tracker.settings.reference import describe
from tracker.store.access.audit import MAX_OBJECTS, Audit, AuditEntry, AuditFilter, ChangedObject, Way
from tracker.store.access.tokens import NAME_LENGTH, ROLES, Session
from tracker.store.schema.multipliers import parse_end, parse_past
from tracker.store.schema.record import Field, fields_of
from tracker.store.torrents.records import Torrent
from tracker.store.users.fields import User
from tracker.store.users.rules import Group
from tracker.store.work.records import Project
from tracker.system.logger import Logger

PAGE = 50
_MAX_TEXT = 200
_RECORDS: dict[str, type] = {"torrent": Torrent, "user": User, "group": Group, "project": Project}
_FILTERS = ("actor", "operation", "object", "way", "since", "until")


class SystemPages(Pages):
    @get("/settings", "settings.html")
    async def settings(self, request: web.Request) -> dict[str, Any]:
        rows, parts = describe(self._context.settings), []  # (name, sentence, settings, how many are no default)
        for name, field in Settings.model_fields.items():
            mine = [row for row in rows if row.name.startswith(variable(name, ""))]
            changed = sum(row.value != row.default for row in mine)
            parts.append((name, (field.default.__doc__ or "").strip(), mine, changed))
        return {"parts": parts, "wanted": request.query.get("q", "")[:100], "last": self._context.last_reload()}

    @get("/doctor", "doctor.html", part="parts/findings.html")
    async def doctor(self, request: web.Request) -> dict[str, Any]:
        findings = [finding async for finding in run_checks(self._store, self._context.settings)]
        levels = Counter(finding.level for finding in findings)
        return {"findings": findings, "levels": levels, "problems": self._context.problems(), "at": self._clock()}

    @get("/tokens", "tokens.html", role="admin")
    async def tokens(self, request: web.Request, secret: str = "") -> dict[str, Any]:
        return {
            "tokens": await self._store.tokens.list(),
            "roles": ROLES,
            "secret": secret,
            "max_name_length": NAME_LENGTH,
        }

    @post("/tokens", "token.create", role="admin", errors_on="tokens")
    async def create_token(self, request: web.Request, form: Form) -> dict[str, Any]:
        """No redirect, because only this response contains the token. A resend fails: the name is taken."""
        role = next((role for role in ROLES if role == form.text("role")), ROLES[0])
        expires = parse_end(form.text("expires"), self._clock())
        addresses = form.text("addresses").replace(",", " ").split()
        create = self._store.tokens.create
        token, secret = await create(form.text("name"), role, expires=expires, addresses=addresses)
        request[CHANGE].created("token", token.token_id)
        return await self.tokens(request, secret=secret)

    @post("/tokens/{token_id:[0-9a-f]+}/revoke", "token.revoke", role="admin")
    async def revoke_token(self, request: web.Request, form: Form) -> web.Response:
        await self._store.tokens.revoke(request.match_info["token_id"])
        return done(request, "/tokens", "revoked")

    @get("/audit", role="admin")
    async def audit(self, request: web.Request) -> web.Response:
        """The query has the filters, and ``cursor``."""
        texts = {name: clean(request.query.get(name, ""), _MAX_TEXT) for name in _FILTERS}
        cursor, error = clean(request.query.get("cursor", ""), 50), ""
        entries, after = list[AuditEntry](), ""
        try:
            since, until = (parse_past(texts[name], self._clock()) for name in ("since", "until"))
            wanted = AuditFilter(texts["actor"], texts["operation"], texts["object"], texts["way"], since, until)
            entries, after = await _audit_page(self._store.audit, wanted, cursor)
        except ClientError as problem:
            wanted, error = AuditFilter(), str(problem)
        exported = {name: getattr(wanted, name) for name in _FILTERS if getattr(wanted, name) not in (None, "")}
        variables = {
            "entries": [(entry, [(each, changed(each)) for each in objects]) for entry, objects in _folded(entries)],
            # The browser refuses other values than such times.
            "filters": {**texts, "since": input_time(wanted.since), "until": input_time(wanted.until)},
            "filtered": any(texts.values()),
            "operations": sorted({rule.operation for rule in RULES.values()} - {""}),
            "ways": get_args(Way),
            **first_and_next("/audit", texts, cursor, after),
            "exports": exports_of("/audit", exported),
        }
        return render(request, "audit.html", variables, error=error)


async def _audit_page(audit: Audit, wanted: AuditFilter, cursor: str) -> tuple[list[AuditEntry], str]:
    """A page, and all further entries of its last call. Also the next cursor, empty at the end. Raises ClientError."""
    entries, after = await audit.page(wanted, cursor, PAGE)
    call = _folded(entries)[-1][0] if entries else None
    while after and call and (call.further or len(call.objects) == MAX_OBJECTS):
        more, end = await audit.page(wanted, after, PAGE)
        rest = list(takewhile(partial(_continues, call), more))
        entries += rest
        if not rest:
            break
        after = end if len(rest) == len(more) else rest[-1].id
    return entries, after


def _folded(entries: Iterable[AuditEntry]) -> list[tuple[AuditEntry, list[ChangedObject]]]:
    """Each entry with its objects. Those of further entries are among the objects of their call."""
    rows: list[tuple[AuditEntry, list[ChangedObject]]] = []
    for entry in entries:
        if rows and _continues(rows[-1][0], entry):
            rows[-1][1].extend(entry.objects)
        else:
            rows.append((entry, list(entry.objects)))
    return rows


def _continues(call: AuditEntry, entry: AuditEntry) -> bool:
    same = attrgetter("actor", "token_id", "way", "address", "operation", "details")
    return entry.further and same(call) == same(entry) and call.at - entry.at <= 1


def changed(each: ChangedObject) -> list[tuple[str, str, str]]:
    """(field, before, after): of a new or deleted object without what is the default."""
    names = dict.fromkeys((*each.before, *each.after))
    values = [(name, each.before.get(name, ""), each.after.get(name, "")) for name in names]
    if each.before and each.after:
        return values
    known = fields_of(_RECORDS[each.kind]) if each.kind in _RECORDS else {}
    return [row for row in values if "".join(row[1:]) not in _defaults(known.get(row[0]))]


def _defaults(field: Field | None) -> tuple[str, ...]:
    if field is None or field.kind in ("number", "limit"):
        return ("0",)
    return ("1",) if field.kind == "rules" else (str(field.default).lower(),)


log = Logger("tracker.admin")

_MAX_BYTES = 4096
"""Max size of a sign-in form, which needs no authentication."""


def sign_in_routes(context: AdminContext) -> list[web.AbstractRouteDef]:
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
            request.app[ACCESS].note_failure(request)
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
