"""/torrents/{info_hash}: one torrent, its peers, its history, and the locations of its users."""

import asyncio
from dataclasses import asdict

from pydantic import Field

from tracker.admin.api.contract import Call, Download, Endpoints, Reply
from tracker.admin.api.models import InfoHashText, Items, Moment, Page, Paged, copy_of
from tracker.admin.api.torrents import TorrentRow, fields_of, known
from tracker.errors import existing
from tracker.operations.peers import PeerView, peer_views
from tracker.store.schema.keys import SCOPES, Scope
from tracker.store.torrents.scores import ScorePlace
from tracker.wire.torrent_file import MEDIA_TYPE

endpoints = Endpoints("torrents", "Torrents and their statistics.")


@copy_of(ScorePlace, rank=None, last_processed=Moment, next_turn=Moment)
class ScoreTurn(Reply):
    """The rank of a torrent by score, and when it is scored next."""

    rank: int = Field(description="1 is the highest score.")


class TorrentDetails(TorrentRow):
    """A torrent in full."""

    unique_users: int = Field(description="All-time; docs/uniques.md defines who counts.")
    has_file: bool = Field(description="Whether `GET /torrents/{info_hash}/file` returns a .torrent file.")
    turn: ScoreTurn | None = Field(description="null if not ranked.")


class TorrentDownload(Download):
    """A .torrent file."""

    media_type = MEDIA_TYPE


@copy_of(PeerView, first_announce=Moment, last_announce=Moment)
class PeerRow(Reply):
    """An active peer. Client names and counts are self-reported."""


class PeerPage(Page[PeerRow]):
    """A page of peers, unordered."""


class HistoryPoint(Reply):
    """The state of a torrent at one scoring."""

    at: Moment
    seeders: int
    leechers: int
    snatches: int
    score: float


class History(Items[HistoryPoint]):
    """The history of a torrent, oldest first."""


class TorrentPlace(Reply):
    """Unique users of a torrent in one location."""

    scope: Scope
    place: str = Field(description="Such as `France`, `France/Paris` or `France/75001`, escaped as in docs/uniques.md.")
    users: int


class TorrentPlaces(Page[TorrentPlace]):
    """Locations of a torrent's users, highest count first."""

    users: int = Field(description="All unique users of the torrent.")


@endpoints.get("/torrents/{info_hash}", "Show a torrent")
async def show(call: Call, info_hash: InfoHashText) -> TorrentDetails:
    torrent = await known(call, info_hash)
    place = await call.store.scores.place(torrent.torrent_id)
    return TorrentDetails(
        **fields_of(torrent),
        unique_users=await _users(call, torrent.info_hash.hex()),
        has_file=await asyncio.to_thread(call.context.torrent_files.has, torrent.info_hash),
        turn=None if place is None else ScoreTurn(**asdict(place) | {"rank": place.rank + 1}),
    )


@endpoints.get("/torrents/{info_hash}/file", "Download a .torrent file", missing="No .torrent file is kept.")
async def file(call: Call, info_hash: InfoHashText) -> TorrentDownload:
    """The file as it was uploaded, without announce URLs and comments; TRACKER_TORRENTS__KEEP_FILES keeps files."""
    torrent = await known(call, info_hash)
    kept = await asyncio.to_thread(call.context.torrent_files.read, torrent.info_hash)
    data = existing(kept, ".torrent file")
    return TorrentDownload(content=data, file_name=f"{torrent.info_hash.hex()}.torrent")


async def _users(call: Call, info_hash: str) -> int:
    return await call.store.unique_users.users_of(f"torrents.{info_hash}.users")


@endpoints.get("/torrents/{info_hash}/peers", "List peers of a torrent")
async def peers(call: Call, info_hash: InfoHashText, query: Paged) -> PeerPage:
    """Never shows passkeys."""
    torrent = await known(call, info_hash)
    after, page = await call.store.torrents.peers(torrent, query.cursor, query.limit)
    views = await peer_views(call.store, page, call.context.places)
    items = [PeerRow.model_validate(asdict(view)) for view in views]
    return PeerPage.scan(after, items, torrent.seeders + torrent.leechers)


@endpoints.get("/torrents/{info_hash}/history", "Show the history of a torrent")
async def history(call: Call, info_hash: InfoHashText) -> History:
    """One point per scoring, up to TRACKER_SCORING__HISTORY."""
    points = await call.store.torrents.history(await known(call, info_hash))
    return History(items=[HistoryPoint.from_record(point, snatches=point.completions) for point in points])


@endpoints.get("/torrents/{info_hash}/uniques", "List user locations of a torrent")
async def uniques(call: Call, info_hash: InfoHashText, query: Paged) -> TorrentPlaces:
    """All-time unique users by country, city and postcode."""
    torrent = await known(call, info_hash)
    places = await call.store.unique_users.places(torrent.info_hash, query.limit, query.offset)
    items = [
        TorrentPlace.model_validate({"scope": scope, "place": entry.name, "users": entry.users})
        for scope, entry in places
        if scope in SCOPES
    ]
    users = await _users(call, torrent.info_hash.hex())
    return TorrentPlaces.of(query, items, None, users=users)
