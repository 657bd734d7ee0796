"""/torrents: the register, and changes of it; what one torrent has is in swarms.py."""

from typing import Any, Literal

from pydantic import Field, model_validator

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Body, Call, Endpoints, Form
from tracker.admin.api.models import Factor, Flag, InfoHashText, LineText, Paged, ReasonText, page_of
from tracker.admin.api.routing import conflict, not_found
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError
from tracker.store.torrents import Torrent

endpoints = Endpoints("torrents", "What may be announced, with its figures.")

_UNKNOWN = {404: "There is no such torrent."}
_ID_TAKEN = {409: "It is registered with an id that is not a number, which only a site can have written."}


class TorrentRow(Answer):
    """A torrent and its figures."""

    info_hash: str
    torrent_id: str = Field(description="By this number Redis knows it.")
    name: str
    state: operations.State = Field(
        description="`denied` goes before `disabled`; `unregistered` ones are left over from a removal."
    )
    reason: str = Field(description="What peers are told when it is disabled or denied.")
    private: bool
    seeders: int
    leechers: int
    snatches: int = Field(description="How often it was downloaded completely.")
    announces: int
    score: float | None = Field(description="null when it is not in the ranking.")


class TorrentPage(Answer):
    """A page of torrents: by `offset` in an order, by `cursor` of a search."""

    items: list[TorrentRow]
    total: int | None = Field(description="How many there are in all; null of a search.")
    next_offset: int | None = Field(description="The `offset` of the next page; null at the end.")
    next_cursor: str | None = Field(description="The `cursor` of a search's next page; null at the end.")


class TorrentQuery(Paged):
    q: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A part of a name, in any case, or the beginning of an info hash. A search has no order and takes "
        "`cursor` instead of `sort`, `order` and `offset`.",
    )
    cursor: str = Field(
        "", pattern="^[0-9A-Za-z]{0,64}$", description="`next_cursor` of a search's page before."
    )
    sort: Literal["seeders", "leechers", "snatches", "score"] = Field(
        "seeders", description="By `score`, only torrents that have one are listed."
    )
    order: Literal["asc", "desc"] = "desc"

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "TorrentQuery":
        sorting = self.model_fields_set & {"sort", "order", "offset"}
        if self.q is not None and sorting:
            raise ValueError("a search (q) takes cursor, and not sort, order or offset")
        if self.q is None and self.cursor:
            raise ValueError("cursor belongs to a search (q)")
        return self


class TorrentNew(Body):
    """A torrent by its info hash. Of a known one, what is left out or null stays."""

    info_hash: str = Field(
        pattern="^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$",
        description="40 hexadecimal digits, or the 64 of a v2 torrent, which clients announce by the first 40.",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    )
    name: LineText | None = None
    private: bool | None = None
    enabled: bool | None = Field(None, description="A new one is, unless this is false.")
    reason: ReasonText | None = None
    multi_up: Factor | None = Field(None, description="What is uploaded counts so many times for the user.")
    multi_dn: Factor | None = Field(None, description="What is downloaded counts so many times for the user.")
    reset_score: bool = Field(False, description="Let the score of a known torrent begin anew.")


class TorrentUpload(Form):
    """A torrent by its .torrent file."""

    file: bytes = Field(description="The .torrent file.")
    name: LineText | None = Field(None, description="Instead of the file's own name.")
    private: Flag = Field(False, description="Mark as private even when the file does not.")
    reset_score: Flag = Field(False, description="Let the score of a known torrent begin anew.")


class TorrentEdit(Body):
    """What is to change; what is left out or null stays."""

    name: LineText | None = None
    enabled: bool | None = Field(None, description="false refuses announces, and keeps the figures.")
    reason: ReasonText | None = None
    private: bool | None = None
    multi_up: Factor | None = None
    multi_dn: Factor | None = None


class Registered(Answer):
    """A torrent that was registered."""

    info_hash: str
    torrent_id: str
    new: bool = Field(description="false: it had been registered, and keeps its id and figures.")
    name: str


class RegisteredAll(Answer):
    """What was registered: two torrents of a hybrid file, one otherwise."""

    torrents: list[Registered]
    new: bool = Field(description="Whether any of them is new.")


@endpoints.get("/torrents", "List or search torrents")
async def list_all(call: Call, query: TorrentQuery) -> TorrentPage:
    torrents = call.stores.torrents
    if query.q is not None:
        after, found = await torrents.search(query.q, query.limit, query.cursor)
        return TorrentPage(items=rows(found), total=None, next_offset=None, next_cursor=after or None)
    found = await torrents.top(query.sort, query.limit, query.offset, ascending=query.order == "asc")
    total = await (call.stores.scores.count() if query.sort == "score" else torrents.count())
    return TorrentPage(**page_of(query, rows(found), total), next_cursor=None)


@endpoints.post(
    "/torrents",
    "Register a torrent",
    status=201,
    known="They were registered already, and got the name and marks that were sent.",
    errors=_ID_TAKEN,
    location="/torrents/{answer.torrents[0].info_hash}",
)
async def create(call: Call, body: TorrentNew | TorrentUpload) -> RegisteredAll:
    """By info hash, or by .torrent file. A hybrid file is registered under its v1 and its v2 hash."""
    torrents = call.stores.torrents
    if isinstance(body, TorrentUpload):
        added = await operations.add_file(
            torrents,
            body.file,
            name=body.name,
            private=body.private,
            reset_score=body.reset_score,
            max_bytes=call.desk.settings.admin.max_upload_bytes,
        )
    else:
        fields = operations.torrent_fields(
            name=body.name,
            private=body.private,
            enabled=body.enabled,
            reason=body.reason,
            multi_up=body.multi_up,
            multi_dn=body.multi_dn,
        )
        info_hash = operations.parse_hash(body.info_hash)
        try:
            added = [await operations.add_torrent(torrents, info_hash, fields, reset_score=body.reset_score)]
        except ClientError as error:
            raise conflict(error) from error
    registered = [
        Registered(info_hash=a.info_hash.hex(), torrent_id=a.torrent_id, new=a.new, name=a.name)
        for a in added
    ]
    return RegisteredAll(torrents=registered, new=any(each.new for each in registered))


@endpoints.patch("/torrents/{info_hash}", "Change a torrent", errors=_UNKNOWN)
async def edit(call: Call, info_hash: InfoHashText, body: TorrentEdit) -> TorrentRow:
    """Disabling holds from the very next announce; without a reason peers read a fixed one."""
    torrents, wanted = call.stores.torrents, parse_info_hash(info_hash)
    found = await torrents.get(wanted)
    if found is None or not found.registered:
        raise not_found("torrent")
    await torrents.edit(wanted, operations.torrent_fields(**body.model_dump()))
    return row(await known(call, info_hash))


@endpoints.delete("/torrents/{info_hash}", "Remove a torrent", errors=_UNKNOWN)
async def remove(call: Call, info_hash: InfoHashText) -> None:
    """Takes the registration away; peers in the swarm go when they fall silent. On a tracker in open mode the next
    announce registers it anew: deny it instead."""
    if not await call.stores.torrents.remove(parse_info_hash(info_hash)):
        raise not_found("torrent")


async def known(call: Call, info_hash: str) -> Torrent:
    """Raises Problem."""
    found = await call.stores.torrents.get(parse_info_hash(info_hash))
    if found is None:
        raise not_found("torrent")
    return found


def fields_of(torrent: Torrent) -> dict[str, Any]:
    """The fields of a TorrentRow."""
    return {
        "info_hash": torrent.info_hash.hex(),
        "torrent_id": torrent.torrent_id,
        "name": torrent.name,
        "state": operations.state_of(torrent),
        "reason": torrent.reason if torrent.denied is None else torrent.denied,
        "private": torrent.private,
        "seeders": torrent.seeders,
        "leechers": torrent.leechers,
        "snatches": torrent.completions,
        "announces": torrent.announces,
        "score": torrent.score,
    }


def row(torrent: Torrent) -> TorrentRow:
    return TorrentRow(**fields_of(torrent))


def rows(torrents: list[Torrent]) -> list[TorrentRow]:
    return [row(torrent) for torrent in torrents]
