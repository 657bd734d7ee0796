"""/torrents: lists, shows and changes torrents; /scores: the ranking."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from tracker.admin.api.changes import FEED_CONFLICT, TorrentQuery, updated
from tracker.admin.api.contract import Body, Call, Download, Endpoints, Form, Reply
from tracker.admin.api.models import (
    MAX_ROWS,
    Batch,
    Count,
    FormEnd,
    FormFlag,
    FormRules,
    Hex,
    InfoHashText,
    ItemList,
    LineText,
    Moment,
    Outcome,
    Outcomes,
    OwnIdValue,
    Page,
    Paged,
    Part,
    ReasonText,
    RowError,
    applied,
    changes_of,
    copy_of,
    reply_of,
)
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError, Conflict, existing
from tracker.operations.peers import PeerView, peer_views
from tracker.operations.torrents import (
    Added,
    State,
    add_file,
    add_torrent,
    add_torrents,
    edit_torrent,
    find_torrents,
    parse_hash,
    remove_torrent,
    state_of,
    torrent_fields,
)
from tracker.store.schema.keys import SCOPES, Scope
from tracker.store.schema.multipliers import MULTIPLIERS, refuse_ended, with_end_names
from tracker.store.schema.record import fields_of as record_fields
from tracker.store.schema.record import shown
from tracker.store.torrents.records import LABEL, MAX_LABELS, STORED_NAMES, Enabled
from tracker.store.torrents.scores import Lag, ScorePlace
from tracker.store.torrents.torrents import Torrent
from tracker.wire.torrent_file import MEDIA_TYPE

endpoints = Endpoints("torrents", "Torrents and their statistics.")

_NO_HALF = "it, or the torrent that `hybrid_of` names, is a half of another hybrid torrent."
_REFUSED = (
    f"Its torrent ID is not a number; only a site can have written it. Or {_NO_HALF[:-1]}, or that torrent is not "
    "registered."
)


HashOfAnyLength = Annotated[
    str,
    Field(
        pattern="^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$",
        description="40 hexadecimal digits, or 64 for a v2 torrent (announced by the first 40).",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    ),
]
V1HalfText = Annotated[
    str,
    Field(
        pattern="^([0-9a-fA-F]{40})?$",
        description="Of the v2 half of a hybrid torrent: info hash of the v1 half, which counts for users. It must be "
        "registered. Empty: ends the link, of either half.",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    ),
]
Labels = Annotated[
    list[Annotated[str, Field(pattern=f"^{LABEL}$")]], Field(max_length=MAX_LABELS, examples=[["linux", "2026"]])
]
_FIELDS = record_fields(Torrent)
_ROW = [name for name in _FIELDS if name != "enabled"]
SnatchCount = Annotated[
    int, Field(ge=0, lt=10**15, description="Completed downloads so far. Only a new torrent gets it.")
]


@reply_of(Torrent, enabled=None, hybrid_of=str | None, hybrid=str | None)
class TorrentRow(Reply):
    """A torrent with its statistics."""

    info_hash: str
    state: State = Field(
        description="`denied` takes precedence over `disabled` and `pending` (it waits for approval); "
        "`unregistered`: removed, but peers remain."
    )
    snatches: int = Field(description="Completed downloads.")


@changes_of(Torrent, enabled=Enabled, reason=ReasonText, size=Count, labels=Labels, hybrid_of=V1HalfText)
class TorrentEdit(Body):
    """Changes; omitted and null fields are unchanged."""


class TorrentBatchRow(TorrentEdit):
    """A torrent to register or change. Omitted and null fields are unchanged."""

    info_hash: HashOfAnyLength
    snatches: SnatchCount | None = None
    torrent_id: OwnIdValue | None = None


class TorrentNew(TorrentBatchRow):
    """A torrent by info hash. Omitted and null fields of an existing torrent are unchanged."""

    reset_score: bool = Field(False, description="Reset the score of an existing torrent.")


class TorrentUpload(Form):
    """A torrent by .torrent file."""

    file: bytes = Field(description="The .torrent file.")
    name: LineText | None = Field(None, description="Overrides the name in the file.")
    private: FormFlag = Field(False, description="Mark as private even if the file is not.")
    pending: FormFlag = Field(False, description="Refuse announces until `enabled` is set to true.")
    labels: LineText | None = Field(
        None, description="Replaces the labels. Separated by spaces or commas.", examples=["linux 2026"]
    )
    upload_multiplier: FormRules | None = Field(None, description=_FIELDS["upload_multiplier"].about)
    upload_multiplier_until: FormEnd | None = Field(None, description="Its end (epoch s); default: never.")
    download_multiplier: FormRules | None = Field(None, description=_FIELDS["download_multiplier"].about)
    download_multiplier_until: FormEnd | None = Field(None, description="Its end (epoch s); default: never.")
    reset_score: FormFlag = Field(False, description="Reset the score of an existing torrent.")


@copy_of(Added, info_hash=Hex)
class Registered(Reply):
    """A registered torrent."""


class RegisteredAll(Reply):
    """The registered torrents: two for a hybrid file, else one."""

    status_code = 201
    location = "/torrents/{reply.torrents[0].info_hash}"
    known_text = "Already registered; the given fields were updated. A file alone does not rename it."

    torrents: list[Registered]
    new: bool = Field(description="Whether any of them is new.")


@endpoints.get(
    "/torrents", "List or search torrents", conflict=FEED_CONFLICT, schema="TorrentPage: A page of torrents."
)
async def list_all(call: Call, query: TorrentQuery) -> Page[TorrentRow]:
    """Sorted by an index, filtered, or searched."""
    page = await part(call, query, query.cursor, query.limit)
    items = [TorrentRow(**row) for row in page.rows]
    return Page(items=items, total=page.total, next_cursor=page.cursor or None)


async def part(call: Call, query: TorrentQuery, cursor: str, count: int) -> Part:
    if query.updated_since is None:
        page = await find_torrents(call.store, query.filter, query.q or "", cursor, count)
        return Part(list(map(fields_of, page.rows)), page.cursor, page.total, page.first)
    names, after, since = await updated(call, attrgetter("info_hash"), query.updated_since, cursor, count)
    torrents = await call.store.torrents.get_all([parse_info_hash(name) for name in names])
    return Part(list(map(fields_of, torrents)), after, since=since)


@endpoints.post("/torrents", "Register a torrent", "torrent.add", conflict=_REFUSED)
async def create(call: Call, body: TorrentNew) -> RegisteredAll:
    """By its info hash. `POST /torrent-files` takes .torrent files."""
    fields = torrent_fields(**body.model_dump(exclude={"info_hash", "reset_score"}))
    _refuse_ended(call, fields)
    info_hash = parse_hash(body.info_hash)
    try:
        return _registered([await add_torrent(call.store, info_hash, fields, reset_score=body.reset_score)])
    except ClientError as error:
        raise Conflict(error.text) from error


@endpoints.post(
    "/torrent-files",
    "Register a torrent by file",
    "torrent.add",
    conflict="One of its hashes is a half of another hybrid torrent.",
)
async def upload(call: Call, body: TorrentUpload) -> RegisteredAll:
    """A hybrid file is registered under both its v1 and v2 hash, as one torrent: the v1 half counts for users."""
    multipliers = body.model_dump(include={*with_end_names(MULTIPLIERS)})
    _refuse_ended(call, torrent_fields(**multipliers))
    added = await add_file(
        call.store,
        body.file,
        name=body.name,
        private=body.private,
        pending=body.pending,
        labels=None if body.labels is None else [body.labels],
        reset_score=body.reset_score,
        **multipliers,
        files=call.context.torrent_files,
        max_bytes=call.context.settings.admin.max_upload_bytes,
    )
    return _registered(added)


def _registered(added: Sequence[Added]) -> RegisteredAll:
    return RegisteredAll(torrents=list(map(Registered.from_record, added)), new=any(each.new for each in added))


@endpoints.patch("/torrents/{info_hash}", "Change a torrent", "torrent.edit", conflict=_NO_HALF.capitalize())
async def edit(call: Call, info_hash: InfoHashText, body: TorrentEdit) -> TorrentRow:
    """Disabling applies immediately; without a reason peers see a default one. `enabled`, `reason` and multipliers
    also change the other half of a hybrid torrent."""
    torrent = await known(call, info_hash)
    existing(torrent.registered, "torrent")
    fields = torrent_fields(**body.model_dump())
    _refuse_ended(call, fields)
    await edit_torrent(call.store, torrent.info_hash, fields)
    return TorrentRow(**fields_of(await known(call, info_hash)))


@endpoints.delete("/torrents/{info_hash}", "Remove a torrent", "torrent.remove")
async def remove(call: Call, info_hash: InfoHashText) -> None:
    """Unregisters it; its peers disappear within seconds. In open mode the next announce registers it again: deny it
    instead. The other half of a hybrid torrent stays, and counts for itself from then on."""
    existing(await remove_torrent(call.store, call.context.torrent_files, parse_info_hash(info_hash)), "torrent")


def _refuse_ended(call: Call, fields: Mapping[str, str]) -> None:
    """Raises ClientError."""
    refuse_ended((fields[name] for name in STORED_NAMES.values() if name in fields), call.context.clock())


async def known(call: Call, info_hash: str) -> Torrent:
    """Raises NotFound."""
    return existing(await call.store.torrents.get(parse_info_hash(info_hash)), "torrent")


def fields_of(torrent: Torrent) -> dict[str, Any]:
    """The fields of a TorrentRow."""
    return {
        **shown(torrent, _ROW),
        "info_hash": torrent.info_hash.hex(),
        "state": state_of(torrent),
        "reason": torrent.reason if torrent.denied is None else torrent.denied,
        "hybrid_of": torrent.hybrid_of or None,
        "hybrid": torrent.hybrid or None,
        "snatches": torrent.completions,
    }


class TorrentBatch(Batch):
    """Torrents to register or change."""

    torrents: list[SkipValidation[TorrentBatchRow]] = Field(min_length=1, max_length=MAX_ROWS)


class TorrentOutcome(Reply):
    """What became of one row."""

    info_hash: str | None = Field(description="null if it is invalid.")
    torrent_id: str | None
    outcome: Outcome
    error: RowError


@endpoints.post("/torrents/batch", "Register or change many torrents", "torrent.batch", schema="TorrentOutcomes")
async def batch(call: Call, body: TorrentBatch) -> Outcomes[TorrentOutcome]:
    """An invalid row changes nothing, and the others are applied. A repeated batch changes nothing more: torrents that
    exist are `known`. The torrent that `hybrid_of` names must exist, or stand in an earlier row."""

    async def save(valid: list[tuple[InfoHash, dict[str, str]]], _: int) -> Sequence[tuple[str, bool] | ClientError]:
        halves = await call.store.hybrids.others([info_hash for info_hash, _ in valid])
        hashes = [info_hash.hex() for info_hash in (*(each for each, _ in valid), *halves.values())]
        before = await call.change.read_rows("torrent", hashes)
        added = await add_torrents(call.store, valid)
        await call.change.note_rows("torrent", before, hashes)
        return added

    def read(row: TorrentBatchRow) -> tuple[InfoHash, dict[str, str]]:
        return parse_hash(row.info_hash), torrent_fields(**row.model_dump(exclude={"info_hash"}))

    return await applied(body.torrents, TorrentBatchRow, read, save, _outcome_torrent, call.context.batches)


def _outcome_torrent(row: TorrentBatchRow | None, added: tuple[str, bool] | ClientError) -> TorrentOutcome:
    info_hash = row.info_hash[:40].lower() if row else None
    if isinstance(added, ClientError):
        return TorrentOutcome(info_hash=info_hash, torrent_id=None, outcome="error", error=added.text)
    torrent_id, new = added
    return TorrentOutcome(info_hash=info_hash, torrent_id=torrent_id, outcome="added" if new else "known", error=None)


score_endpoints = Endpoints("scores", "The ranking of torrents, and the scoring backlog.")


@copy_of(Lag)
class ScoringLag(Reply):
    """The scoring backlog."""


@score_endpoints.get("/scores", "List the ranking", schema="Ranking: Torrents by score, highest first.")
async def ranking(call: Call, query: Paged) -> Page[TorrentRow]:
    found = await call.store.torrents.top("score", query.limit, query.offset)
    items = [TorrentRow(**fields_of(torrent)) for torrent in found]
    return Page.of(query, items, await call.store.scores.count())


@score_endpoints.get("/scores/lag", "Show the scoring backlog")
async def lag(call: Call) -> ScoringLag:
    return ScoringLag(**asdict(await call.store.scores.lag()))


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


class HistoryPoint(Reply):
    """The state of a torrent at one scoring."""

    at: Moment
    seeders: int
    leechers: int
    snatches: int
    score: float


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
        unique_users=await call.store.unique_users.users_of(f"torrents.{torrent.info_hash.hex()}.users"),
        has_file=await asyncio.to_thread(call.context.torrent_files.has, torrent.info_hash),
        turn=None if place is None else ScoreTurn(**asdict(place) | {"rank": place.rank + 1}),
    )


@endpoints.get("/torrents/{info_hash}/file", "Download a .torrent file", missing="No .torrent file is kept.")
async def file(call: Call, info_hash: InfoHashText) -> TorrentDownload:
    """The file as it was uploaded, without announce URLs and comments; TRACKER_TORRENTS__KEEP_FILES keeps files."""
    torrent = await known(call, info_hash)
    kept = await asyncio.to_thread(call.context.torrent_files.read, torrent.info_hash)
    return TorrentDownload(content=existing(kept, ".torrent file"), file_name=f"{torrent.info_hash.hex()}.torrent")


@endpoints.get("/torrents/{info_hash}/peers", "List peers of a torrent", schema="PeerPage: A page of peers, unordered.")
async def peers(call: Call, info_hash: InfoHashText, query: Paged) -> Page[PeerRow]:
    """Never shows passkeys."""
    torrent = await known(call, info_hash)
    after, page = await call.store.torrents.peers(torrent, query.cursor, query.limit)
    views = await peer_views(call.store, page, call.context.places)
    items = [PeerRow.model_validate(asdict(view)) for view in views]
    return Page.scan(after, items, torrent.seeders + torrent.leechers)


@endpoints.get(
    "/torrents/{info_hash}/history",
    "Show the history of a torrent",
    schema="TorrentHistory: The history of a torrent, oldest first.",
)
async def history(call: Call, info_hash: InfoHashText) -> ItemList[HistoryPoint]:
    """One point per scoring, up to TRACKER_SCORING__HISTORY."""
    points = await call.store.torrents.history(await known(call, info_hash))
    return ItemList(items=[HistoryPoint.from_record(point, snatches=point.completions) for point in points])


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
    users = await call.store.unique_users.users_of(f"torrents.{torrent.info_hash.hex()}.users")
    return TorrentPlaces.of(query, items, None, users=users)
