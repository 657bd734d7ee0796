"""What the endpoints for batches of torrents and users share: limits, validation of single rows, outcomes.

The rows of a batch are validated one by one, so that an invalid row is one outcome and the others are applied.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from tracker.admin.api.contract import Body, Reply
from tracker.admin.api.reading import first_error
from tracker.errors import ClientError

MAX_ROWS = 1000
MAX_BATCH_BYTES = 1_048_576
_ROWS_AT_ONCE = 100
"""Rows validated between two calls of the store. Other requests are served between them."""
_MAX_FIELDS = 30
"""Listing the errors of more fields would take long."""

Outcome = Annotated[
    Literal["added", "known", "error"],
    Field(description="`known`: it existed, and got the fields. `error`: nothing was changed."),
]
RowError = Annotated[str | None, Field(description="Why nothing was changed; else null.")]
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=Reply)
Given = TypeVar("Given")
Saved = TypeVar("Saved")


class Batch(Body):
    max_bytes: ClassVar[int] = MAX_BATCH_BYTES


class Outcomes(Reply, Generic[R]):
    """What became of each row, in order."""

    rows: list[R]
    added: int
    known: int
    errors: int


async def applied(
    rows: Sequence[object],
    model: type[M],
    read: Callable[[M], Given],
    save: Callable[[list[Given], int], Awaitable[Sequence[Saved | ClientError]]],
    outcome: Callable[[M | None, Saved | ClientError], R],
    limit: asyncio.Semaphore,
) -> dict[str, Any]:
    """The fields of Outcomes. The rows are applied in parts, while ``limit`` allows the batch.

    ``save`` gets what ``read`` made of the valid rows of a part, and the number of rows before it. ``outcome`` gets
    each row, None if it does not fit the model, and what saving it returned, or why it is invalid.
    """
    outcomes: list[Any] = []
    async with limit:
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            checked = [_checked(row, model, read) for row in rows[first : first + _ROWS_AT_ONCE]]
            valid = [each for _, each in checked if not isinstance(each, ClientError)]
            saved = iter(await save(valid, first))
            outcomes += [outcome(row, each if isinstance(each, ClientError) else next(saved)) for row, each in checked]
    numbers = Counter(each.outcome for each in outcomes)
    return {"rows": outcomes, "added": numbers["added"], "known": numbers["known"], "errors": numbers["error"]}


def _checked(row: object, model: type[M], read: Callable[[M], Given]) -> tuple[M | None, Given | ClientError]:
    if not isinstance(row, dict):
        return None, ClientError("not a JSON object")
    if len(row) > _MAX_FIELDS:
        return None, ClientError("too many fields")
    try:
        found = model.model_validate(row, strict=True)
    except ValidationError as error:
        return None, ClientError(first_error(error))
    try:
        return found, read(found)
    except ClientError as error:
        return found, error
