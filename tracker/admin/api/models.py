"""What several endpoints have in common: kinds of text, pages of lists, months."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Answer, Query
from tracker.admin.operations import MOST

T = TypeVar("T")

InfoHashText = Annotated[
    str,
    Field(
        pattern="^[0-9a-fA-F]{40}$",
        description="An info hash: 40 hexadecimal digits.",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    ),
]
UserIdText = Annotated[
    str,
    Field(pattern="^[1-9][0-9]{0,14}$", description="The id of a user: a decimal number.", examples=["7"]),
]
LineText = Annotated[
    str,
    Field(
        max_length=1000,
        pattern="^[^\\u0000-\\u001f\\u007f]*$",
        description="One line of text, of any characters.",
    ),
]
ReasonText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        pattern="^[^\\u0000-\\u001f\\u007f]*$",
        description="Shown to whoever announces the torrent.",
        examples=["taken down by request"],
    ),
]
Moment = Annotated[int, Field(description="A time in epoch seconds (UTC).", examples=[1_800_000_000])]
Factor = Annotated[
    float, Field(ge=0, le=1000, allow_inf_nan=False, description="Six decimals are kept.", examples=[2.0])
]


def _digits(value: object) -> object:
    """Of a query string: int() would also take signs, spaces, fractions and underscores."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 20):
        raise ValueError("write a whole number in digits")
    return value


def _true_or_false(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("write true or false")
    return value


def _integral(value: object) -> object:
    """JSON knows one kind of numbers: 2.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Bounds stand before the validator: behind it they are held, but not described.
Whole = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(_digits)]
"""A number in a query string."""
Limit = Annotated[int, Field(ge=1, le=500), BeforeValidator(_digits)]
Cursor = Annotated[int, Field(ge=0, le=2**64 - 1), BeforeValidator(_digits)]
Count = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(_integral)]
"""A number in JSON."""
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
"""A yes or no in a query string or a form."""


class Paged(Query):
    """A list in an order: pages by place."""

    offset: Whole = Field(
        0, ge=0, le=MOST, description="How many to leave out; `next_offset` of the page before."
    )
    limit: Limit = Field(100, description="How many to answer at most.")


class OffsetPage(Answer, Generic[T]):
    """A page of a list in an order."""

    items: list[T]
    total: int | None = Field(
        description="How many there are in all; null where counting them would be dear."
    )
    next_offset: int | None = Field(description="The `offset` of the next page; null at the end.")


def page_of(query: Paged, items: list[Any], total: int | None) -> dict[str, Any]:
    """The fields of an OffsetPage. Without a total a full page may have another after it."""
    after = query.offset + query.limit
    more = len(items) >= query.limit if total is None else after < total
    return {"items": items, "total": total, "next_offset": after if more and after <= MOST else None}


class Scanned(Query):
    """A list in no order: pages by cursor."""

    cursor: Cursor = Field(0, description="`next_cursor` of the page before; 0 begins.")
    limit: Limit = Field(100, description="About how many to answer; a page may have more, or none.")


class CursorPage(Answer, Generic[T]):
    """A page of a list in no order. One that changes meanwhile may be missed, or come twice."""

    items: list[T]
    total: int | None = Field(
        description="How many there are in all; null where counting them would be dear."
    )
    next_cursor: str | None = Field(description="The `cursor` of the next page; null at the end.")


def scan_of(after: int, items: list[Any], total: int | None = None) -> dict[str, Any]:
    """The fields of a CursorPage."""
    return {"items": items, "total": total, "next_cursor": str(after) if after else None}


Period = Annotated[
    str,
    Field(
        pattern="^(all|[0-9]{4}-(0[1-9]|1[0-2]))$",
        description="`all`, or a month (UTC) such as `2026-11`.",
        examples=["all", "2026-11"],
    ),
]
Scope = Literal["countries", "cities", "postcodes", "torrents"]
