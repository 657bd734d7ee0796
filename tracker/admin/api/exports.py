"""Exports of the lists of torrents and users, with the filters and the order of the lists."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from tracker.admin.api import torrents, users
from tracker.admin.api.contract import Call, Endpoints, Export, Query, Reply
from tracker.admin.api.models import Whole
from tracker.admin.api.selections import TorrentSelection, UserSelection
from tracker.admin.api.torrents import TorrentRow
from tracker.admin.api.users import UserRow
from tracker.errors import StoreUnavailable
from tracker.operations.export import csv_lines, json_lines
from tracker.operations.lists import exported_torrents, exported_users
from tracker.store.schema.record import shown
from tracker.store.swarms.all_peers import ActivePeer

endpoints = Endpoints("exports", "Lists of torrents and users as files.")

_Row = TypeVar("_Row")
Pages = AsyncIterator[list[_Row]]


class ListCsv(Export):
    """The rows as CSV."""

    media_type: ClassVar[str] = "text/csv"


class ListJsonLines(Export):
    """The rows, one JSON object a line."""

    media_type: ClassVar[str] = "application/jsonl"


@endpoints.get("/torrents/csv", "Export torrents as CSV")
async def torrents_as_csv(call: Call, query: TorrentSelection) -> ListCsv:
    """The first 100,000 of the list, without passkeys. `tracker export` has no limit."""
    found = exported_torrents(call.store, query.filter, query.q or "")
    return ListCsv(chunks=_csv(found, torrents.fields_of, TorrentRow), file_name="torrents.csv")


@endpoints.get("/torrents/json-lines", "Export torrents as JSON lines")
async def torrents_as_json_lines(call: Call, query: TorrentSelection) -> ListJsonLines:
    """The first 100,000 of the list, without passkeys. `tracker export` has no limit."""
    found = exported_torrents(call.store, query.filter, query.q or "")
    return ListJsonLines(chunks=_json(found, torrents.fields_of), file_name="torrents.jsonl")


@endpoints.get("/users/csv", "Export users as CSV")
async def users_as_csv(call: Call, query: UserSelection) -> ListCsv:
    """The first 100,000 of the list, without passkeys. `tracker export` has no limit."""
    found = exported_users(call.store, query.filter)
    return ListCsv(chunks=_csv(found, users.fields_of, UserRow), file_name="users.csv")


@endpoints.get("/users/json-lines", "Export users as JSON lines")
async def users_as_json_lines(call: Call, query: UserSelection) -> ListJsonLines:
    """The first 100,000 of the list, without passkeys. `tracker export` has no limit."""
    found = exported_users(call.store, query.filter)
    return ListJsonLines(chunks=_json(found, users.fields_of), file_name="users.jsonl")


class PeerQuery(Query):
    cursor: str = Field(
        "",
        pattern="^([0-9]{1,3}-[0-9]{1,19})?$",
        description="`next_cursor` of the last line of the export before.",
    )
    limit: Whole = Field(1_000_000, ge=1, description="Approximate number of peers before the export ends.")


class PeerJsonLines(Export):
    """The peers, one JSON object a line."""

    media_type: ClassVar[str] = "application/jsonl"


@endpoints.get("/peers", "Export active peers as JSON lines")
async def peers(call: Call, query: PeerQuery) -> PeerJsonLines:
    """In no order; a peer may come twice. The last line has `rows` and `next_cursor`, null at the end of all peers. If
    the store became unavailable, `error` says so there, and `next_cursor` continues. An export without that line was
    cut off. Role `read` sees no endpoints."""
    first = await call.store.all_peers.page(query.cursor)  # a wrong cursor is refused here
    return PeerJsonLines(chunks=_peers(call, first, query.limit), file_name="peers.jsonl")


async def _peers(call: Call, page: tuple[str, list[ActivePeer]], limit: int) -> AsyncIterator[bytes]:
    number, error = 0, dict[str, str]()
    while True:
        cursor, found = page
        number += len(found)
        yield json_lines(_peer_line(call, each) for each in found)
        if not cursor or number >= limit:
            break
        try:
            page = await call.store.all_peers.page(cursor)
        except StoreUnavailable:
            error = {"error": "the store is unavailable"}
            break
    yield json_lines([{"rows": number, "next_cursor": cursor or None, **error}])


def _peer_line(call: Call, peer: ActivePeer) -> dict[str, Any]:
    return shown(peer) if call.sees_secrets else {**shown(peer), "endpoints": ()}


async def _csv(
    pages: Pages[_Row], fields_of: Callable[[_Row], Mapping[str, Any]], model: type[Reply]
) -> AsyncIterator[bytes]:
    columns = tuple(model.model_fields)
    yield csv_lines(columns, ()).encode()
    async for page in pages:
        yield csv_lines(columns, map(fields_of, page), header=False).encode()


async def _json(pages: Pages[_Row], fields_of: Callable[[_Row], Mapping[str, Any]]) -> AsyncIterator[bytes]:
    async for page in pages:
        yield json_lines(map(fields_of, page))
