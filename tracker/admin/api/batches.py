"""What the endpoints for batches of torrents and users share: limits, validation of single rows, outcomes.

The rows of a batch are validated one by one, so that an invalid row is one outcome and the others are applied.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
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


class Batch(Body):
    """A body with many rows."""

    max_bytes: ClassVar[int] = MAX_BATCH_BYTES


class Outcomes(Reply, Generic[R]):
    """What became of each row, in order."""

    rows: list[R]
    added: int
    known: int
    errors: int


def counted(outcomes: Sequence[Any]) -> dict[str, Any]:
    """The fields of Outcomes."""
    numbers = Counter(each.outcome for each in outcomes)
    return {"rows": outcomes, "added": numbers["added"], "known": numbers["known"], "errors": numbers["error"]}


def check_row(model: type[M], row: object) -> M | ClientError:
    """The row, or why it is invalid."""
    if not isinstance(row, dict):
        return ClientError("not a JSON object")
    if len(row) > _MAX_FIELDS:
        return ClientError("too many fields")
    try:
        return model.model_validate(row, strict=True)
    except ValidationError as error:
        return ClientError(first_error(error))


async def in_parts(rows: Sequence[object], limit: asyncio.Semaphore) -> AsyncIterator[Sequence[object]]:
    """The rows in parts to validate and apply, while ``limit`` allows the batch."""
    async with limit:
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            yield rows[first : first + _ROWS_AT_ONCE]
