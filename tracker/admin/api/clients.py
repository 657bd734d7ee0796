"""/clients: the allow-list; /software: which programs were seen."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Body, Call, Endpoints
from tracker.admin.api.models import (
    CursorPage,
    LineText,
    OffsetPage,
    Paged,
    Period,
    Scanned,
    page_of,
    scan_of,
)
from tracker.admin.api.routing import not_found

endpoints = Endpoints("clients", "The allow-list of client programs, and the programs that were seen.")


def _as_shown(text: object) -> object:
    """As lists show it, also where the escapes were taken for those of the URL."""
    return operations.shown_prefix(operations.parse_prefix(text)) if isinstance(text, str) else text


PrefixText = Annotated[
    str,
    BeforeValidator(_as_shown),
    Field(
        pattern="^(%[0-9A-Fa-f]{2}|[!-$&-~]){1,20}$",
        description="The beginning of a peer id, 1 to 20 bytes, as lists show it: what is not plain text is `%` and two "
        "hexadecimal digits.",
        examples=["-TR40", "%00%FF"],
    ),
]


class ClientRow(Answer):
    """The programs whose peer ids begin so are let in."""

    prefix: str
    name: str


class ClientPage(CursorPage[ClientRow]):
    """A page of the allow-list, in no order."""


class ClientPut(Body):
    """What the program is called."""

    name: LineText = Field("", description="For people.")


class SoftwareRow(Answer):
    """A program and how often it was seen."""

    name: str = Field(
        description="Such as `qBittorrent 5.0.2`; of failures `qBittorrent 5.0.2: unknown torrent`."
    )
    count: int


class SoftwarePage(OffsetPage[SoftwareRow]):
    """Programs, the most frequent first."""


class SoftwareQuery(Paged):
    period: Period = "all"


@endpoints.get("/clients", "List allowed programs")
async def list_all(call: Call, query: Scanned) -> ClientPage:
    """The list holds where TRACKER_CLIENTS__ALLOW_LIST is on."""
    after, found = await call.stores.clients.page(query.cursor, query.limit)
    items = [ClientRow(prefix=operations.shown_prefix(prefix), name=name) for prefix, name in found]
    return ClientPage(**scan_of(after, items))


@endpoints.put("/clients/{prefix}", "Allow a program")
async def allow(call: Call, prefix: PrefixText, body: ClientPut) -> ClientRow:
    wanted = operations.parse_prefix(prefix)
    await call.stores.clients.allow(wanted, body.name)
    return ClientRow(prefix=operations.shown_prefix(wanted), name=body.name)


@endpoints.delete("/clients/{prefix}", "Take a program off the list", errors={404: "It is not on the list."})
async def disallow(call: Call, prefix: PrefixText) -> None:
    if not await call.stores.clients.disallow(operations.parse_prefix(prefix)):
        raise not_found("prefix on the list")


@endpoints.get("/software/{kind}", "Programs that were seen")
async def software(call: Call, kind: Literal["joins", "failures"], query: SoftwareQuery) -> SoftwarePage:
    """By joins, or by refusals and their reason. What programs call themselves is theirs; rare ones are forgotten."""
    seen = call.stores.software
    found = await seen.top(kind, query.period, query.limit, query.offset)
    items = [SoftwareRow(name=name, count=number) for name, number in found]
    return SoftwarePage(**page_of(query, items, await seen.size(kind, query.period)))
