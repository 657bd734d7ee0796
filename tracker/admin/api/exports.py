"""Exports: lists of torrents and users with the filters and the order of the lists, what users have on torrents, all
active peers. Each is sent as it is read, and says where it ends. /user-torrents/batch brings such a history along."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SkipValidation

from tracker.admin.api import torrents, users
from tracker.admin.api.changes import FEED_CONFLICT, TorrentQuery, UpdatedSince, UserQuery, updated
from tracker.admin.api.contract import Body, Call, Download, Endpoints, Query, Reply
from tracker.admin.api.models import (
    MAX_ROWS,
    Batch,
    Outcome,
    Outcomes,
    Part,
    RowError,
    UserIdValue,
    applied,
    changes_of,
    number,
)
from tracker.admin.api.system import AUDIT_CURSOR, AuditQuery
from tracker.admin.api.torrents import TorrentRow
from tracker.admin.api.users import UserRow
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError, StoreUnavailable
from tracker.operations.export import csv_lines, json_lines
from tracker.store.access.audit import COLUMNS
from tracker.store.changes.changes import Change
from tracker.store.schema.record import MAX_EXACT, shown
from tracker.store.sharding.shards import named, noting_unavailable_shards
from tracker.store.swarms import all_peers
from tracker.store.users.history import History

endpoints = Endpoints(
    "exports",
    "Lists as files. An export ends after about `limit` rows. The last line of JSON lines has `rows` and "
    "`next_cursor`: null, or the `cursor` that continues. It has `next_updated_since` at the end of a list with "
    "`updated_since`, and `error` if the store became unavailable. Without that line the export was cut off. A CSV "
    "file that ends early has a last line that begins with `#` and has the cursor. The header `Export-Complete` is "
    "`yes` or `no` where that is known before, else `unknown`.",
)

COMPLETE = "Export-Complete"
"""The header that says whether the export has the whole list: yes, no, or unknown. The last line says it too."""
PAGE = 100
"""Rows that are read at a time. The event loop is held for about a millisecond."""
_CURSOR = "`next_cursor` of the last line of the export before."
Limit = Annotated[
    int, Field(ge=1, le=MAX_EXACT, description="About how many rows the export has."), BeforeValidator(number)
]

Read = Callable[[str, int], Awaitable[Part]]
"""Takes a cursor, and about how many rows to read."""


class ListCsv(Download):
    """The rows as CSV."""

    media_type: ClassVar[str] = "text/csv"


class JsonLines(Download):
    """The rows, one JSON object a line, and the line that ends them."""

    media_type: ClassVar[str] = "application/jsonl"


class TorrentExport(TorrentQuery):
    limit: Limit = 100_000


class UserExport(UserQuery):
    limit: Limit = 100_000


async def export(read: Read, file_name: str, cursor: str, limit: int, columns: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a Download: CSV with ``columns``, else JSON lines. The first part is read here, so that an invalid
    request is refused."""
    first = await _whole(read, cursor, limit)
    if not first.cursor:
        answer = "yes"
    elif first.total is None or (cursor and first.first is None):
        answer = "unknown"
    else:
        answer = "yes" if first.total - (first.first or 0) <= limit else "no"
    content = _chunks(read, first, cursor, limit, columns)
    return {"content": content, "file_name": file_name, "headers": {COMPLETE: answer}}


async def _whole(read: Read, cursor: str, count: int) -> Part:
    """Raises StoreUnavailable if a shard is left out."""
    with noting_unavailable_shards() as missing:
        part = await read(cursor, min(count, PAGE))
    if missing:
        raise StoreUnavailable(f"the store does not answer for {named(missing)}")
    return part


async def _chunks(read: Read, part: Part, start: str, limit: int, columns: Sequence[str]) -> AsyncIterator[bytes]:
    number, error = 0, ""
    if columns:
        yield csv_lines(columns, ()).encode()
    while True:
        number += len(part.rows)
        yield csv_lines(columns, part.rows, header=False).encode() if columns else json_lines(part.rows)
        # Where a cursor stands for many rows, those of the first one are all sent: else it would never change.
        if not part.cursor or (number >= limit and part.cursor != start):
            break
        try:
            part = await _whole(read, part.cursor, max(1, limit - number))
        except StoreUnavailable:
            error = "the store is unavailable"
        except ClientError as found:
            error = found.text
        if error:
            break
    if not columns:
        since = {"next_updated_since": part.since} if part.since and not part.cursor else {}
        why = {"error": error} if error else {}
        yield json_lines([{"rows": number, "next_cursor": part.cursor or None, **since, **why}])
    elif part.cursor:
        reason = f": {error}" if error else ""
        yield f"# ends early after {number} rows{reason}; next_cursor: {part.cursor}\r\n".encode()


class AuditExport(AuditQuery):
    cursor: str = Field("", pattern=AUDIT_CURSOR, description=_CURSOR)
    limit: Limit = 10_000


async def _audited(call: Call, query: AuditExport, cursor: str, count: int) -> Part:
    found, after = await call.store.audit.page(query.filter, cursor, count)
    return Part([asdict(entry) for entry in found], after)


def _list(
    name: str,
    what: str,
    query: type[Query],
    part: Callable[[Call, Any, str, int], Awaitable[Part]],
    columns: Sequence[str],
    **options: Any,
) -> None:
    async def as_csv(call: Call, query: Any) -> ListCsv:
        return ListCsv(**await export(partial(part, call, query), f"{name}.csv", query.cursor, query.limit, columns))

    async def as_json_lines(call: Call, query: Any) -> JsonLines:
        return JsonLines(**await export(partial(part, call, query), f"{name}.jsonl", query.cursor, query.limit))

    for handler, path, label in ((as_csv, "csv", "CSV"), (as_json_lines, "json-lines", "JSON lines")):
        handler.__name__ = f"{name}_{handler.__name__}"
        handler.__annotations__["query"] = query
        endpoints.get(f"/{name}/{path}", f"Export {what} as {label}", **options)(handler)


_list("audit", "changes by admins", AuditExport, _audited, COLUMNS, role="admin")
_list("torrents", "torrents", TorrentExport, torrents.part, (*TorrentRow.model_fields,), conflict=FEED_CONFLICT)
_list("users", "users", UserExport, users.part, (*UserRow.model_fields,), conflict=FEED_CONFLICT)


class PeerQuery(Query):
    cursor: str = Field("", pattern="^([0-9]{1,3}-[0-9]{1,19})?$", description=_CURSOR)
    limit: Limit = 1_000_000


@endpoints.get("/peers", "Export active peers as JSON lines")
async def peers(call: Call, query: PeerQuery) -> JsonLines:
    """In no order; a peer may come twice. Role `read` sees no endpoints."""

    start = query.cursor or all_peers.FIRST
    parts = call.store.all_peers.parts(start)

    async def read(_cursor: str, _count: int) -> Part:
        after, found = await anext(parts)
        hidden = {} if call.sees_secrets else {"endpoints": ()}
        return Part([{**shown(each), **hidden} for each in found], after)

    return JsonLines(**await export(read, "peers.jsonl", start, query.limit))


class UserTorrentQuery(Query):
    updated_since: UpdatedSince = None
    cursor: str = Field("", pattern="^([0-9]{1,19}(-[0-9]{1,19})?)?$", description=_CURSOR)
    limit: Limit = 1_000_000


@endpoints.get("/user-torrents", "Export what users have on torrents as JSON lines", conflict=FEED_CONFLICT)
async def user_torrents(call: Call, query: UserTorrentQuery) -> JsonLines:
    """By user, in no further order; a row may come twice. Rows on removed torrents are left out. With `updated_since`
    only rows that changed; regular announces count only where TRACKER_CHANGES__UPDATES_SECONDS is set."""
    history, since = call.store.user_history, query.updated_since
    start = query.cursor or ("0" if since is None else "")
    parts = history.parts(start)

    async def read(cursor: str, count: int) -> Part:
        if since is None:
            after, rows = await anext(parts)
            return Part([shown(each) for each in rows], after)
        found, after, later = await updated(call, _on_torrent, since, cursor, count)
        return Part([shown(each) for each in await history.rows(await _pairs(call, found))], after, since=later)

    return JsonLines(**await export(read, "user-torrents.jsonl", start, query.limit))


def _on_torrent(change: Change) -> tuple[str, str, str] | None:
    """(user id, torrent id or empty, info hash or empty), of a user on a torrent."""
    torrent = (change.torrent_id or "", change.info_hash or "")
    return (change.user_id, *torrent) if change.user_id and any(torrent) else None


async def _pairs(call: Call, found: Sequence[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """(user id, torrent id). Edits name the torrent by its info hash only."""
    hashes = {parse_info_hash(info_hash): None for _, torrent_id, info_hash in found if not torrent_id}
    known = {each.info_hash.hex(): each.torrent_id for each in await call.store.torrents.get_all([*hashes])}
    pairs = ((user_id, torrent_id or known.get(info_hash, "")) for user_id, torrent_id, info_hash in found)
    return list(dict.fromkeys(pair for pair in pairs if pair[1]))


user_torrent_endpoints = Endpoints("user-torrents", "What users have on torrents.")


@changes_of(History)
class HistoryRow(Body):
    """What a user has on a torrent. Omitted and null fields are unchanged."""

    user_id: UserIdValue
    torrent_id: UserIdValue


class HistoryBatch(Batch):
    """Rows of users on torrents."""

    user_torrents: list[SkipValidation[HistoryRow]] = Field(min_length=1, max_length=MAX_ROWS)
    add_to_totals: bool = Field(
        False, description="Add what a row changes to the totals of its user and torrent: credited bytes, snatches."
    )


class HistoryOutcome(Reply):
    """What became of one row."""

    user_id: str | None
    torrent_id: str | None
    outcome: Outcome
    error: RowError


@user_torrent_endpoints.post(
    "/user-torrents/batch", "Bring along the history of users", "user_torrent.batch", schema="HistoryOutcomes"
)
async def user_torrents_batch(call: Call, body: HistoryBatch) -> Outcomes[HistoryOutcome]:
    """For a site that moves in: what its former tracker counted. Announces add to it. An invalid row changes nothing,
    and the others are applied. A repeated batch changes nothing more."""

    async def save(valid: list[dict[str, Any]], _: int) -> Sequence[bool | ClientError]:
        return await call.store.user_history.save(valid, add_to_totals=body.add_to_totals)

    def read(row: HistoryRow) -> dict[str, Any]:
        return row.model_dump(exclude_none=True)

    return await applied(body.user_torrents, HistoryRow, read, save, _outcome, call.context.batches)


def _outcome(row: HistoryRow | None, saved: bool | ClientError) -> HistoryOutcome:
    ids = (row.user_id, row.torrent_id) if row else (None, None)
    error = saved.text if isinstance(saved, ClientError) else None
    outcome = "error" if error is not None else "added" if saved is True else "known"
    return HistoryOutcome.model_validate({"user_id": ids[0], "torrent_id": ids[1], "outcome": outcome, "error": error})
