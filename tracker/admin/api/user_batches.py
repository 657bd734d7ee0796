"""/users/batch: many users at a time."""

from collections.abc import Sequence

from pydantic import Field, SkipValidation

from tracker.admin.api.batch_rows import MAX_ROWS, Batch, Outcome, RowError, check_row, in_parts
from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.models import UserIdValue
from tracker.admin.api.users import UserFields
from tracker.admin.api.users import endpoints as user_endpoints
from tracker.errors import ClientError
from tracker.store.schema.multipliers import join_ends
from tracker.store.users.fields import Value
from tracker.store.users.importing import SavedUser

endpoints = Endpoints(user_endpoints.tag, user_endpoints.about)


class UserBatchRow(UserFields):
    """A user to add or change, by `user_id` or `passkey`. Omitted and null fields are unchanged. A new user without a
    passkey gets a random one."""

    user_id: UserIdValue | None = None


class UserBatch(Batch):
    """Users to add or change."""

    users: list[SkipValidation[UserBatchRow]] = Field(min_length=1, max_length=MAX_ROWS)
    replace_totals: bool = Field(
        False, description="Replace totals of known users too. They may have grown since they were exported."
    )


class UserOutcome(Reply):
    """What became of one row."""

    user_id: str | None
    outcome: Outcome
    passkey: str | None = Field(description="The passkey that was generated for a new user; else null.")
    error: RowError


class UserOutcomes(Reply):
    """What became of each row, in order."""

    rows: list[UserOutcome]
    added: int
    known: int
    errors: int


@endpoints.post("/users/batch", "Add or change many users")
async def batch(call: Call, body: UserBatch) -> UserOutcomes:
    """An invalid row changes nothing, and the others are applied. A repeated batch changes nothing more: users that
    exist are `known`."""
    outcomes: list[UserOutcome] = []
    async for part in in_parts(body.users, call.context.batches):
        outcomes += await _apply(call, part, replace_totals=body.replace_totals)
    counts = {name: sum(each.outcome == name for each in outcomes) for name in ("added", "known", "error")}
    return UserOutcomes(rows=outcomes, added=counts["added"], known=counts["known"], errors=counts["error"])


async def _apply(call: Call, rows: Sequence[object], *, replace_totals: bool) -> list[UserOutcome]:
    checked = [check_row(UserBatchRow, row) for row in rows]
    read = [row if isinstance(row, ClientError) else _read(row) for row in checked]
    valid = [each for each in read if not isinstance(each, ClientError)]
    given = [
        str(row.get("user_id") or row["passkey"]) for row in valid if row.get("user_id") or row.get("passkey")
    ]
    before = await call.change.read_rows("user", given)
    saved = await call.store.user_import.save(valid, replace_totals=replace_totals)
    call.change.given({name: True for row in valid for name in row})
    ids = [each.user_id for each in saved if not isinstance(each, ClientError)]
    await call.change.note_rows("user", before, ids)
    outcomes = iter(saved)
    return [
        _outcome(row, each if isinstance(each, ClientError) else next(outcomes))
        for row, each in zip(checked, read, strict=True)
    ]


def _read(row: UserBatchRow) -> dict[str, Value] | ClientError:
    """The user as stored; or why it is invalid."""
    try:
        return join_ends(row.model_dump(exclude_none=True))
    except ClientError as error:
        return error


def _outcome(row: UserBatchRow | ClientError, saved: SavedUser | ClientError) -> UserOutcome:
    if isinstance(saved, ClientError):
        user_id = None if isinstance(row, ClientError) else row.user_id
        return UserOutcome(user_id=user_id, outcome="error", passkey=None, error=saved.text)
    outcome: Outcome = "added" if saved.new else "known"
    return UserOutcome(user_id=saved.user_id, outcome=outcome, passkey=saved.passkey or None, error=None)
