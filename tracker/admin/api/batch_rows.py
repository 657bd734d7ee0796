"""What the endpoints for batches share: their limits, and the validation of single rows.

The rows of a batch are validated one by one, so that an invalid row is one outcome and the others are applied.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from tracker.admin.api.contract import Body
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


class Batch(Body):
    """A body with many rows."""

    max_bytes: ClassVar[int] = MAX_BATCH_BYTES


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
