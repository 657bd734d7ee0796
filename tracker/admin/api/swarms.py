"""/torrents/{info_hash}: one torrent, its peers, its past, and where its users are."""

from dataclasses import asdict
from typing import Literal

from pydantic import Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Call, Endpoints
from tracker.admin.api.models import (
    CursorPage,
    InfoHashText,
    Moment,
    OffsetPage,
    Paged,
    Scanned,
    page_of,
    scan_of,
)
from tracker.admin.api.torrents import TorrentRow, fields_of, known

endpoints = Endpoints("torrents", "What may be announced, with its figures.")

_UNKNOWN = {404: "There is no such torrent."}


class ScoreTurn(Answer):
    """Where a torrent stands in the ranking by score, and when it is scored."""

    rank: int = Field(description="From 1, the highest score.")
    of: int = Field(description="Torrents in the ranking.")
    last_processed: Moment
    next_turn: Moment
    being_scored: bool


class TorrentDetails(TorrentRow):
    """A torrent, with what a list leaves out."""

    multi_up: float = Field(description="What is uploaded counts so many times for the user.")
    multi_dn: float = Field(description="What is downloaded counts so many times for the user.")
    unique_users: int = Field(description="Of all time; see docs/uniques.md for who is counted.")
    turn: ScoreTurn | None = Field(description="null when it is not in the ranking.")


class PeerRow(Answer):
    """An active peer. What programs and users say of themselves is theirs: any program can claim any name."""

    peer_id: str = Field(description="40 hexadecimal digits.")
    endpoints: list[str] = Field(
        description="Addresses and ports, such as `192.0.2.1:6881` or `[2001:db8::1]:6881`."
    )
    client: str = Field(description="The program that the peer id names.")
    country: str = Field(description="ISO 3166-1 alpha-2; empty when unknown.")
    seeding: bool
    partial_seed: bool = Field(description="Has all it wants, but not everything.")
    user_id: str = Field(description="Of a private tracker; else empty.")
    uploaded: int = Field(description="Bytes.")
    downloaded: int = Field(description="Bytes.")
    bytes_left: int | None = Field(description="null when the client does not say.")
    upload_speed: float = Field(description="Bytes per second between the last two announces.")
    download_speed: float
    first_announce: Moment
    last_announce: Moment
    total_seconds: int = Field(description="How long it has been here.")


class PeerPage(CursorPage[PeerRow]):
    """A page of peers, in no order."""


class HistoryPoint(Answer):
    """A torrent when it was scored."""

    at: Moment
    seeders: int
    leechers: int
    snatches: int
    score: float


class History(Answer):
    """A torrent's past, oldest first."""

    items: list[HistoryPoint]


class TorrentPlace(Answer):
    """Unique users of a torrent in one place."""

    scope: Literal["countries", "cities", "postcodes"]
    place: str = Field(
        description="Such as `GB`, `GB/ENG/London` or `GB/SW1A`, escaped as in docs/uniques.md."
    )
    users: int


class TorrentPlaces(OffsetPage[TorrentPlace]):
    """Where a torrent's users are, most first."""

    users: int = Field(description="Unique users of the torrent, wherever they are.")


@endpoints.get("/torrents/{info_hash}", "Show a torrent", errors=_UNKNOWN)
async def show(call: Call, info_hash: InfoHashText) -> TorrentDetails:
    torrent = await known(call, info_hash)
    place = await call.stores.scores.place(torrent.torrent_id)
    return TorrentDetails(
        **fields_of(torrent),
        multi_up=operations.figure(torrent.fields.get("multi_up", "1")),
        multi_dn=operations.figure(torrent.fields.get("multi_dn", "1")),
        unique_users=await _users(call, torrent.info_hash.hex()),
        turn=None if place is None else ScoreTurn(**asdict(place) | {"rank": place.rank + 1}),
    )


async def _users(call: Call, info_hash: str) -> int:
    return await call.stores.uniques.figure(f"torrents.{info_hash}.users")


@endpoints.get("/torrents/{info_hash}/peers", "List its peers", errors=_UNKNOWN)
async def peers(call: Call, info_hash: InfoHashText, query: Scanned) -> PeerPage:
    """Passkeys are never shown here."""
    torrent = await known(call, info_hash)
    after, found = await call.stores.torrents.peers(torrent, query.cursor, query.limit)
    views = (operations.peer_view(peer, call.desk.places) for peer in found)
    items = [PeerRow.model_validate(asdict(view)) for view in views]
    return PeerPage(**scan_of(after, items, torrent.seeders + torrent.leechers))


@endpoints.get("/torrents/{info_hash}/history", "Show its past", errors=_UNKNOWN)
async def history(call: Call, info_hash: InfoHashText) -> History:
    """A point for each time that it was scored, as many as TRACKER_SCORING__HISTORY keeps."""
    points = await call.stores.torrents.history(await known(call, info_hash))
    return History(
        items=[
            HistoryPoint(
                at=int(point.at),
                seeders=point.seeders,
                leechers=point.leechers,
                snatches=point.completions,
                score=point.score,
            )
            for point in points
        ]
    )


@endpoints.get("/torrents/{info_hash}/uniques", "Where its users are", errors=_UNKNOWN)
async def uniques(call: Call, info_hash: InfoHashText, query: Paged) -> TorrentPlaces:
    """Unique users of all time by country, city and postcode."""
    torrent = await known(call, info_hash)
    found = await call.stores.uniques.places(torrent.info_hash, query.limit, query.offset)
    items = [
        TorrentPlace.model_validate({"scope": scope, "place": standing.name, "users": standing.users})
        for scope, standing in found
        if scope in ("countries", "cities", "postcodes")
    ]
    users = await _users(call, torrent.info_hash.hex())
    return TorrentPlaces(**page_of(query, items, None), users=users)
