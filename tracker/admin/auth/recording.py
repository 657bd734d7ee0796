"""Records changes by the API and the dashboard in the audit log: what operations/audit.py says, for each request."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tracker.admin.auth.auth import IDENTITY, SAFE_METHODS, rule_of
from tracker.admin.context import CONTEXT
from tracker.admin.http.form_body import read_form_body
from tracker.admin.http.problems import Handler
from tracker.operations.audit import Caller, Change
from tracker.operations.snapshots import ALL_USERS, Kind
from tracker.wire.endpoint import format_address

CHANGE = web.RequestKey("change", Change)
"""The change that a request makes; missing if it makes none."""

KINDS: Mapping[str, Kind] = {
    "info_hash": "torrent",
    "user_id": "user",
    "group_id": "group",
    "prefix": "client",
    "project": "project",
    "queue": "queue",
    "id": "job",
    "token_id": "token",
}
"""The kind of object that a parameter or field of this name names."""
_ONLY: Mapping[str, str] = {"prefix": "client.", "queue": "jobs.", "id": "jobs."}
"""The beginning of the operations in which it does; others use the name for something else."""
_MAX_NAME = 1000
_DETAILS: Mapping[str, tuple[str, ...]] = {
    "claims.release": ("claimant", "item", "item_prefix", "prefix", "min_age", "hours"),
    "items.add": ("queue", "claimant", "copies", "again"),
    "items.purge": ("list", "before"),
    "items.remove": ("name", "item"),
    "jobs.purge": ("status", "before"),
    "jobs.reprocess": ("min_score", "max_score", "min_seeders", "max_seeders"),
    "user.batch": ("replace_totals",),
    "user_torrent.batch": ("add_to_totals",),
    "user.forgive": ("torrent_id",),
}
"""Parameters and fields, by operation, that the entry shows as they were sent."""


@web.middleware
async def recording_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Runs after the role check."""
    identity, resource = request.get(IDENTITY), request.match_info.route.resource
    if identity is None or resource is None or request.method in SAFE_METHODS:
        return await handler(request)
    rule, is_api = rule_of(request.method, resource.canonical), request.path.startswith("/api/")
    if rule is None or not rule.operation:
        return await handler(request)
    address = format_address(identity.address) if identity.address else ""
    caller = Caller(identity.name, identity.role, "api" if is_api else "dashboard", identity.token_id, address)
    change = request[CHANGE] = Change(request.app[CONTEXT].store, caller, rule.operation)
    if not is_api:  # the API validates its parameters first: api/reading.py
        await touch_named(change, {**await read_form_body(request), **request.match_info})
    try:
        response = await handler(request)
    except Exception:
        await change.record(failed=True)
        raise
    await change.record(failed=response.status >= 400)
    return response


async def touch_named(change: Change, values: Mapping[str, Any]) -> None:
    """Notes the objects and the fields that parameters and fields of a request name."""
    texts = {name: value for name, value in values.items() if isinstance(value, str) and 0 < len(value) <= _MAX_NAME}
    change.given(values)
    change.note(**{name: values[name] for name in _DETAILS.get(change.operation, ()) if name in values})
    if change.operation == "multipliers.set":
        await change.touch("multipliers", ALL_USERS)
    if change.operation == "project.create" and "name" in texts:
        await change.touch("project", texts["name"])
    for name, kind in KINDS.items():
        if name in texts and change.operation.startswith(_ONLY.get(name, "")):
            await change.touch(kind, texts[name])
    if "user_id" not in texts and "passkey" in texts:
        await change.touch("user", texts["passkey"])
    if "who" in texts:
        await change.touch("block", f"{texts.get('project', '')}/{texts['who']}")


def note_created(change: Change, reply: object) -> None:
    """Notes the new object that a reply names, and its numbers."""
    is_known = getattr(reply, "new", True) is False
    for name in () if is_known else _NEW:
        value = getattr(reply, name, None)
        if isinstance(value, str) and value:
            change.created(KINDS[name], value)
    if hasattr(reply, "info_hash"):  # a torrent, whose numbers are not those of the call
        return
    numbers = {name: getattr(reply, name, None) for name in _COUNTS}
    change.count(**{name: number for name, number in numbers.items() if isinstance(number, int)})


_NEW = ("info_hash", "user_id", "id", "token_id")
_COUNTS = ("added", "known", "errors", "processed", "removed", "released", "deleted", "forgiven")
