"""The page of the audit log, for role admin only."""

from typing import get_args
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.permissions import RULES
from tracker.admin.context import AdminContext
from tracker.admin.pages.formats import input_time
from tracker.admin.pages.forms import clean
from tracker.admin.pages.rendering import render
from tracker.errors import ClientError
from tracker.store.access.audit import AuditEntry, AuditFilter, Way
from tracker.store.schema.multipliers import parse_past

PAGE = 50
OPERATIONS = sorted({rule.operation for rule in RULES.values() if rule.operation})
_MAX_TEXT = 200
_FIELDS = ("actor", "operation", "object", "way", "since", "until")


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    async def show(request: web.Request) -> web.Response:
        """The query has the filters, and ``cursor``."""
        texts = {name: clean(request.query.get(name, ""), _MAX_TEXT) for name in _FIELDS}
        cursor, error = clean(request.query.get("cursor", ""), 50), ""
        entries: list[AuditEntry] = []
        after = ""
        try:
            wanted = _filter(texts, context.clock())
            entries, after = await context.store.audit.page(wanted, cursor, PAGE)
        except ClientError as problem:
            wanted, error = AuditFilter(), str(problem)
        given = {name: text for name, text in texts.items() if text}
        exported = {
            name: getattr(wanted, name) for name in _FIELDS if getattr(wanted, name) not in (None, "")
        }
        variables = {
            "entries": entries,
            # The browser refuses other values than such times.
            "filters": {**texts, "since": input_time(wanted.since), "until": input_time(wanted.until)},
            "filtered": bool(given),
            "operations": OPERATIONS,
            "ways": get_args(Way),
            "first_url": f"/audit?{urlencode(given)}" if cursor else "",
            "next_url": f"/audit?{urlencode({**given, 'cursor': after})}" if after else "",
            "exports": [
                (f"/api/v1/audit/{path}?{urlencode(exported)}", label)
                for path, label in (("csv", "CSV"), ("json-lines", "JSON lines"))
            ],
            "error": error,
        }
        return render(request, "audit.html", variables, status=422 if error else 200)

    return [web.get("/audit", show)]


def _filter(texts: dict[str, str], now: float) -> AuditFilter:
    """Raises ClientError for an invalid time."""
    since, until = (parse_past(texts[name], now) for name in ("since", "until"))
    return AuditFilter(texts["actor"], texts["operation"], texts["object"], texts["way"], since, until)
