"""The page of the audit log, for role admin only."""

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import get_args
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.permissions import RULES
from tracker.admin.pages.formats import input_time
from tracker.admin.pages.forms import clean
from tracker.admin.pages.paging import exports_of
from tracker.admin.pages.rendering import Pages, get, render
from tracker.errors import ClientError
from tracker.store.access.audit import MAX_OBJECTS, Audit, AuditEntry, AuditFilter, ChangedObject, Way
from tracker.store.schema.multipliers import parse_past
from tracker.store.schema.record import Field, fields_of
from tracker.store.torrents.records import Torrent
from tracker.store.users.fields import User
from tracker.store.users.rules import Group
from tracker.store.work.records import Project

PAGE = 50
_MAX_TEXT = 200
_RECORDS: dict[str, type] = {"torrent": Torrent, "user": User, "group": Group, "project": Project}
_FIELDS = ("actor", "operation", "object", "way", "since", "until")


class AuditPage(Pages):
    @get("/audit", role="admin")
    async def show(self, request: web.Request) -> web.Response:
        """The query has the filters, and ``cursor``."""
        texts = {name: clean(request.query.get(name, ""), _MAX_TEXT) for name in _FIELDS}
        cursor, error = clean(request.query.get("cursor", ""), 50), ""
        entries: list[AuditEntry] = []
        after = ""
        try:
            since, until = (parse_past(texts[name], self._clock()) for name in ("since", "until"))
            wanted = AuditFilter(texts["actor"], texts["operation"], texts["object"], texts["way"], since, until)
            entries, after = await _page(self._store.audit, wanted, cursor)
        except ClientError as problem:
            wanted, error = AuditFilter(), str(problem)
        given = {name: text for name, text in texts.items() if text}
        exported = {name: getattr(wanted, name) for name in _FIELDS if getattr(wanted, name) not in (None, "")}
        variables = {
            "entries": [(entry, [(each, changed(each)) for each in objects]) for entry, objects in _folded(entries)],
            # The browser refuses other values than such times.
            "filters": {**texts, "since": input_time(wanted.since), "until": input_time(wanted.until)},
            "filtered": bool(given),
            "operations": sorted({rule.operation for rule in RULES.values()} - {""}),
            "ways": get_args(Way),
            "first_url": f"/audit?{urlencode(given)}" if cursor else "",
            "next_url": f"/audit?{urlencode({**given, 'cursor': after})}" if after else "",
            "exports": exports_of("/audit", exported),
        }
        return render(request, "audit.html", variables, error=error)


async def _page(audit: Audit, wanted: AuditFilter, cursor: str) -> tuple[list[AuditEntry], str]:
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
    return entry.further and _call_of(call) == _call_of(entry) and call.at - entry.at <= 1


def _call_of(entry: AuditEntry) -> tuple[object, ...]:
    return entry.actor, entry.token_id, entry.way, entry.address, entry.operation, entry.details


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
