"""/user-torrents: what users have on torrents, in bulk."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, SkipValidation

from tracker.admin.api.batches import MAX_ROWS, Batch, Outcome, Outcomes, RowError, applied
from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import UserIdValue, changes_of
from tracker.errors import ClientError
from tracker.store.users.history import History

endpoints = Endpoints("user-torrents", "What users have on torrents.")


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


class HistoryOutcomes(Outcomes[HistoryOutcome]):
    """What became of each row, in order."""


@endpoints.post("/user-torrents/batch", "Bring along the history of users", "user_torrent.batch")
async def batch(call: Call, body: HistoryBatch) -> HistoryOutcomes:
    """For a site that moves in: what its former tracker counted. Announces add to it. An invalid row changes nothing,
    and the others are applied. A repeated batch changes nothing more."""

    async def save(valid: list[dict[str, Any]], _: int) -> Sequence[bool | ClientError]:
        return await call.store.user_history.save(valid, add_to_totals=body.add_to_totals)

    def read(row: HistoryRow) -> dict[str, Any]:
        return row.model_dump(exclude_none=True)

    found = await applied(body.user_torrents, HistoryRow, read, save, _outcome, call.context.batches)
    call.change.count(**{name: number for name, number in found.items() if name != "rows"})
    return HistoryOutcomes(**found)


def _outcome(row: HistoryRow | None, saved: bool | ClientError) -> HistoryOutcome:
    ids = (row.user_id, row.torrent_id) if row else (None, None)
    error = saved.text if isinstance(saved, ClientError) else None
    outcome = "error" if error is not None else "added" if saved is True else "known"
    return HistoryOutcome.model_validate({"user_id": ids[0], "torrent_id": ids[1], "outcome": outcome, "error": error})
