"""/torrents/batch: many torrents at a time."""

from collections.abc import Sequence

from pydantic import Field, SkipValidation

from tracker.admin.api.batch_rows import MAX_ROWS, Batch, Outcome, RowError, check_row, in_parts
from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.torrents import HashOfAnyLength, SnatchCount, TorrentFields
from tracker.admin.api.torrents import endpoints as torrent_endpoints
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.operations.torrents import add_torrents, parse_hash, torrent_fields

endpoints = Endpoints(torrent_endpoints.tag, torrent_endpoints.about)


class TorrentBatchRow(TorrentFields):
    """A torrent to register or change. Omitted and null fields are unchanged."""

    info_hash: HashOfAnyLength
    snatches: SnatchCount | None = None


class TorrentBatch(Batch):
    """Torrents to register or change."""

    torrents: list[SkipValidation[TorrentBatchRow]] = Field(min_length=1, max_length=MAX_ROWS)


class TorrentOutcome(Reply):
    """What became of one row."""

    info_hash: str | None = Field(description="null if it is invalid.")
    torrent_id: str | None
    outcome: Outcome
    error: RowError


class TorrentOutcomes(Reply):
    """What became of each row, in order."""

    rows: list[TorrentOutcome]
    added: int
    known: int
    errors: int


@endpoints.post("/torrents/batch", "Register or change many torrents")
async def batch(call: Call, body: TorrentBatch) -> TorrentOutcomes:
    """An invalid row changes nothing, and the others are applied. A repeated batch changes nothing more: torrents that
    exist are `known`. The torrent that `hybrid_of` names must exist, or stand in an earlier row."""
    outcomes: list[TorrentOutcome] = []
    async for part in in_parts(body.torrents, call.context.batches):
        outcomes += await _apply(call, part)
    counts = {name: sum(each.outcome == name for each in outcomes) for name in ("added", "known", "error")}
    return TorrentOutcomes(
        rows=outcomes, added=counts["added"], known=counts["known"], errors=counts["error"]
    )


async def _apply(call: Call, rows: Sequence[object]) -> list[TorrentOutcome]:
    checked = [check_row(TorrentBatchRow, row) for row in rows]
    read = [row if isinstance(row, ClientError) else _read(row) for row in checked]
    valid = [each for each in read if not isinstance(each, ClientError)]
    halves = await call.store.hybrids.others([info_hash for info_hash, _ in valid])
    hashes = [info_hash.hex() for info_hash in (*(each for each, _ in valid), *halves.values())]
    before = await call.change.read_rows("torrent", hashes)
    added = iter(await add_torrents(call.store, valid))
    await call.change.note_rows("torrent", before, hashes)
    return [
        _outcome(row, each if isinstance(each, ClientError) else next(added))
        for row, each in zip(checked, read, strict=True)
    ]


def _read(row: TorrentBatchRow) -> tuple[InfoHash, dict[str, str]] | ClientError:
    """The info hash and the stored fields; or why they are invalid."""
    try:
        fields = torrent_fields(**row.model_dump(exclude={"info_hash"}))
        return parse_hash(row.info_hash), fields
    except ClientError as error:
        return error


def _outcome(row: TorrentBatchRow | ClientError, added: tuple[str, bool] | ClientError) -> TorrentOutcome:
    info_hash = None if isinstance(row, ClientError) else row.info_hash[:40].lower()
    if isinstance(added, ClientError):
        return TorrentOutcome(info_hash=info_hash, torrent_id=None, outcome="error", error=added.text)
    torrent_id, new = added
    outcome: Outcome = "added" if new else "known"
    return TorrentOutcome(info_hash=info_hash, torrent_id=torrent_id, outcome=outcome, error=None)
