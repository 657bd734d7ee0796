"""Types that several endpoints share: kinds of text, pages of lists, months; and the batches.

The rows of a batch are validated one by one, so that an invalid row is one outcome and the others are applied.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, create_model

from tracker.admin.api.contract import Body, Query, Reply
from tracker.admin.api.reading import first_error
from tracker.errors import ClientError
from tracker.store.schema import record as records
from tracker.store.schema.multipliers import (
    MAX_END,
    MAX_MULTIPLIER,
    MAX_RULE_END,
    MAX_RULES_BYTES,
    RULE,
    multiplier_text,
)
from tracker.store.schema.record import MAX_EXACT
from tracker.store.torrents.torrents import MAX_OWN_ID

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
    str, Field(pattern="^[1-9][0-9]{0,14}$", description="User ID, a decimal number.", examples=["7"])
]
LineText = Annotated[
    str, Field(max_length=1000, pattern="^[^\\u0000-\\u001f\\u007f]*$", description="One line of text.")
]
ReasonText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        pattern="^[^\\u0000-\\u001f\\u007f]*$",
        description="Clients show it to their users.",
        examples=["taken down by request"],
    ),
]
Moment = Annotated[
    int,
    BeforeValidator(lambda value: int(value) if isinstance(value, float) else value),
    Field(description="A time in epoch seconds (UTC).", examples=[1_800_000_000]),
]
OptionalMoment = Annotated[Moment | None, BeforeValidator(lambda value: value or None)]
OptionalText = Annotated[str | None, BeforeValidator(lambda value: value or None)]
"""null for an empty text."""
Hex = Annotated[str, BeforeValidator(lambda value: value.hex() if isinstance(value, bytes) else value)]
"""An info hash in a reply."""
Factor = Annotated[
    float, Field(ge=0, le=1000, allow_inf_nan=False, description="Rounded to six decimals.", examples=[2.0])
]
_RulesText = Annotated[
    str, Field(max_length=MAX_RULES_BYTES, pattern=f"^{RULE}(, {RULE})*$", examples=["2 1800000000 donor, 1.5 group"])
]


def _rules_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if not 0 <= value <= MAX_MULTIPLIER:
        raise ValueError(f"must be a number from 0 to {MAX_MULTIPLIER}")
    return multiplier_text(value)


RulesValue = Annotated[_RulesText, BeforeValidator(_rules_text, json_schema_input_type=Factor | _RulesText)]
"""A multiplier as a number, or its rules as text; the value is text."""
StoredRules = Annotated[float | str, Field(description="A number; with several rules, or a name, the text of all.")]


def number(value: object) -> object:
    """A number of a query string or a form, in digits only: int() also accepts signs, spaces and underscores."""
    if not isinstance(value, str):
        return value
    if not (value.isascii() and value.isdigit() and len(value) <= 20):
        raise ValueError("must be a whole number in digits")
    return int(value)


def _true_or_false(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value


def _not_zero(number: int) -> int:
    if number == 0:
        raise ValueError("must be -1, or at least 1")
    return number


def _integral(value: object) -> object:
    """JSON has one kind of number: 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _digits_of(value: object) -> object:
    """JSON of some sites has ids as numbers."""
    if isinstance(value, bool):
        return value
    value = _integral(value)
    return str(value) if isinstance(value, int) else value


_UserIdNumber = Annotated[int, Field(ge=1, lt=10**15)]
UserIdValue = Annotated[UserIdText, BeforeValidator(_digits_of, json_schema_input_type=UserIdText | _UserIdNumber)]
"""A user ID in JSON; a number is accepted too."""


_OwnIdText = Annotated[
    str,
    Field(
        pattern="^[1-9][0-9]{0,12}$",
        description="The site's own number of a new torrent, which no other has; default: the next one. A known "
        "torrent must have it already. Later numbers are above it.",
        examples=["4711"],
    ),
]
_OwnIdNumber = Annotated[int, Field(ge=1, le=MAX_OWN_ID)]
OwnIdValue = Annotated[_OwnIdText, BeforeValidator(_digits_of, json_schema_input_type=_OwnIdText | _OwnIdNumber)]


# The bounds precede the validator: after it, pydantic checks them but leaves them out of the schema.
Whole = Annotated[int, Field(ge=0, le=MAX_EXACT), BeforeValidator(number)]
"""A number in a query string."""
Limit = Annotated[int, Field(ge=1, le=500), BeforeValidator(number)]
Cursor = Annotated[int, Field(ge=0, le=2**64 - 1), BeforeValidator(number)]
Count = Annotated[int, Field(ge=0, le=MAX_EXACT), BeforeValidator(_integral)]
"""A number in JSON."""
End = Annotated[
    int,
    Field(ge=1, le=MAX_END, description="A time in epoch seconds (UTC).", examples=[1_800_000_000]),
    BeforeValidator(_integral),
]
"""When something ends, in JSON."""
_RuleEnd = Annotated[End, Field(le=MAX_RULE_END)]
MultiplierEnd = Annotated[
    _RuleEnd | None, Field(description="When the multiplier ends (epoch s); without it, it never ends.")
]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
"""A boolean in a query string."""
FormEnd = Annotated[_RuleEnd, BeforeValidator(number)]
"""When something ends, in a form."""
FormRules = _RulesText
"""A multiplier or its rules, in a form."""
FormFlag = Annotated[Flag, BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)]
"""A boolean in a form; generated Python clients send ``False``."""


class Paged(Query):
    cursor: Cursor = Field(0, description="`next_cursor` of the previous page; 0 for the first.")
    limit: Limit = Field(
        100, description="Items per page. A page of an unordered list may have more, or none, before the end."
    )

    @property
    def offset(self) -> int:
        """Of an ordered list: how many items to skip."""
        return min(self.cursor, MAX_EXACT)


class ItemList(Reply, Generic[T]):
    items: list[T]


class CursorPage(ItemList[T], Generic[T]):
    """A page of a list whose length is not known."""

    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last.")


class NewestFirst(ItemList[T], Generic[T]):
    next_before: str | None = Field(description="`before` of the next page; null on the last.")


class Page(ItemList[T], Generic[T]):
    """A page of a list. Items that change between pages may be missing or repeated."""

    total: int | None = Field(description="Total number of items; null where counting is too expensive.")
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last.")

    @classmethod
    def of(cls, query: Paged, items: list[T], total: int | None, **others: Any) -> Self:
        """A page of an ordered list. Without a total, a full page may be followed by an empty one."""
        after = query.offset + query.limit
        more = len(items) >= query.limit if total is None else after < total
        return cls.scan(after if more and after <= MAX_EXACT else 0, items, total, **others)

    @classmethod
    def scan(cls, after: int, items: list[T], total: int | None = None, **others: Any) -> Self:
        """A page of an unordered list."""
        return cls(items=items, total=total, next_cursor=str(after) if after else None, **others)


class Part(NamedTuple):
    """Rows of a list or an export. ``cursor``: that of the next ones, empty at the end. ``total``: of all rows, and
    ``first``: the place of the first one; None: unknown. ``since``: ``updated_since`` of the next list of updates."""

    rows: Sequence[Mapping[str, Any]]
    cursor: str
    total: int | None = None
    first: int | None = None
    since: str = ""


Period = Annotated[
    str,
    Field(
        pattern="^(all|[0-9]{4}-(0[1-9]|1[0-2]))$",
        description="`all`, or a month (UTC) such as `2026-11`.",
        examples=["all", "2026-11"],
    ),
]


class PeriodQuery(Paged):
    period: Period = "all"


M = TypeVar("M", bound=BaseModel)


def changes_of(record: type, **types: Any) -> Callable[[type[M]], type[M]]:
    """Adds the fields of a record that programs set to a body; null ones are unchanged. ``types`` replace those that
    follow from the record; None: without the field."""
    return _with_fields(records.settable(record), _to_set, types)


def reply_of(record: type, **types: Any) -> Callable[[type[M]], type[M]]:
    """Adds the fields of a record to a reply."""
    return _with_fields(records.fields_of(record), _as_shown, types)


def copy_of(record: type, **types: Any) -> Callable[[type[M]], type[M]]:
    """The same with all fields of a dataclass, also those without a ``Field``."""
    return _with_fields(records.fields_of(record, plain=True), _as_shown, types)


_Fields = dict[str, tuple[Any, Any]]


def _with_fields(
    fields: Mapping[str, records.Field], made: Callable[[records.Field, Any], _Fields], types: Mapping[str, Any]
) -> Callable[[type[M]], type[M]]:
    new: _Fields = {}
    for name, field in fields.items():
        if types.get(name, ...) is not None:
            new |= made(field, types.get(name))

    def add(model: type[M]) -> type[M]:
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **cast("Any", new)
        )

    return add


def _to_set(field: records.Field, hint: Any) -> _Fields:
    found = {field.name: ((hint or _set_type(field)) | None, Field(None, description=field.about))}
    return found | {f"{field.name}_until": (MultiplierEnd, None)} if field.kind == "rules" else found


def _set_type(field: records.Field) -> Any:
    if field.kind == "text":
        return Annotated[LineText, Field(max_length=field.max_length)]
    if field.kind in ("number", "limit"):
        unset = field.kind == "limit" and field.lowest == 0
        lowest = min(-1, field.lowest) if field.kind == "limit" else field.lowest
        number = Annotated[int, Field(ge=lowest, le=field.highest), BeforeValidator(_integral)]
        if field.kind != "limit" or unset:
            return number
        return Annotated[number, AfterValidator(_not_zero), Field(json_schema_extra={"not": {"const": 0}})]
    if field.kind == "names":
        return Annotated[list[Annotated[LineText, Field(max_length=255)]], Field(max_length=field.max_length)]
    return RulesValue if field.kind == "rules" else field.hint


def _as_shown(field: records.Field, hint: Any) -> _Fields:
    about = Field(description=field.about) if field.about else ...
    if field.kind == "rules":
        until = Field(description="When it ends; null: never.")
        return {field.name: (StoredRules, about), f"{field.name}_until": (Moment | None, until)}
    if field.unit == "epoch s":
        hint = Moment | None
    kinds = {"names": list[str], "choice": field.hint}
    return {field.name: (hint or kinds.get(field.kind, field.hint), about)}


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
) -> Outcomes[R]:
    """The rows are applied in parts, while ``limit`` allows the batch.

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
    return Outcomes(rows=outcomes, added=numbers["added"], known=numbers["known"], errors=numbers["error"])


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
