"""/clients: the allow-list; /denied-clients and /denials: the deny lists of clients and torrents; /software: client
statistics."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Hex, InfoHashText, LineText, Moment, Page, Paged, PeriodQuery, ReasonText
from tracker.bittorrent import parse_info_hash
from tracker.errors import existing
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent
from tracker.store.access.client_lists import MAX_REASON_LENGTH

endpoints = Endpoints("clients", "The lists of allowed and denied clients, and client statistics.")


PrefixText = Annotated[
    str,
    # The prefix as lists show it, also if a proxy decoded its escapes.
    BeforeValidator(lambda text: format_prefix(parse_prefix(text)) if isinstance(text, str) else text),
    Field(
        pattern="^(%[0-9A-Fa-f]{2}|[!-$&-~]){1,20}$",
        description="Peer id prefix, 1 to 20 bytes; non-printable bytes are percent-encoded.",
        examples=["-TR40", "%00%FF"],
    ),
]


class ClientRow(Reply):
    """An entry of the allow-list: clients with this peer id prefix are allowed."""

    prefix: str
    name: str


class ClientPut(Body):
    """The name of the client."""

    name: LineText = Field("", description="Optional display name.")


class DeniedClientRow(Reply):
    """An entry of the deny list of clients: clients with this peer id prefix are refused."""

    prefix: str
    reason: str = Field(description="Clients show it to their users. Empty: a default text.")


class DeniedClientPut(Body):
    """Why a client is denied."""

    reason: Annotated[str, Field(max_length=MAX_REASON_LENGTH, pattern="^[^\\u0000-\\u001f\\u007f]*$")] = Field(
        "",
        description="Clients show it to their users. Empty: a default text.",
        examples=["this version reports wrong figures: update it"],
    )


class SoftwareRow(Reply):
    """A client with its count."""

    name: str = Field(description="Such as `qBittorrent 5.0.2`; for failures `qBittorrent 5.0.2: unknown torrent`.")
    count: int


@endpoints.get("/clients", "List allowed clients", schema="ClientPage: A page of the allow-list, unordered.")
async def list_all(call: Call, query: Paged) -> Page[ClientRow]:
    """Applies only if TRACKER_CLIENTS__ALLOW_LIST is true."""
    after, page = await call.store.allow_list.page(query.cursor, query.limit)
    return Page.scan(after, [ClientRow(prefix=format_prefix(prefix), name=name) for prefix, name in page])


@endpoints.put("/clients/{prefix}", "Allow a client", "client.allow")
async def allow(call: Call, prefix: PrefixText, body: ClientPut) -> ClientRow:
    await call.store.allow_list.add(parse_prefix(prefix), body.name)
    return ClientRow(prefix=prefix, name=body.name)


@endpoints.delete(
    "/clients/{prefix}", "Remove a client from the allow-list", "client.disallow", missing="Not on the allow-list."
)
async def disallow(call: Call, prefix: PrefixText) -> None:
    existing(await call.store.allow_list.remove(parse_prefix(prefix)), "prefix")


@endpoints.get(
    "/denied-clients", "List denied clients", schema="DeniedClientPage: A page of the deny list of clients, unordered."
)
async def list_denied(call: Call, query: Paged) -> Page[DeniedClientRow]:
    """Applies only if TRACKER_CLIENTS__DENY_LIST is true. A client on both lists is refused."""
    after, page = await call.store.deny_list.page(query.cursor, query.limit)
    items = [DeniedClientRow(prefix=format_prefix(prefix), reason=reason) for prefix, reason in page]
    return Page.scan(after, items)


@endpoints.put("/denied-clients/{prefix}", "Deny a client", "client.deny", conflict="The list is full.")
async def deny(call: Call, prefix: PrefixText, body: DeniedClientPut) -> DeniedClientRow:
    """At most 1,000 prefixes."""
    await call.store.deny_list.add(parse_prefix(prefix), body.reason)
    return DeniedClientRow(prefix=prefix, reason=body.reason)


@endpoints.delete(
    "/denied-clients/{prefix}", "Remove a client from the deny list", "client.undeny", missing="Not on the deny list."
)
async def undeny(call: Call, prefix: PrefixText) -> None:
    existing(await call.store.deny_list.remove(parse_prefix(prefix)), "prefix")


@endpoints.get("/software/{kind}", "List clients by count", schema="SoftwarePage: Clients, highest count first.")
async def software(call: Call, kind: Literal["joins", "failures"], query: PeriodQuery) -> Page[SoftwareRow]:
    """By joins, or by refusals and their reason. Names are self-reported. Rare clients are dropped."""
    seen = call.store.client_software
    ranked = await seen.top(kind, query.period, query.limit, query.offset)
    items = [SoftwareRow(name=name, count=number) for name, number in ranked]
    return Page.of(query, items, await seen.size(kind, query.period))


denial_endpoints = Endpoints("denials", "The deny list: torrents that are refused even if registered.")


class DenialRow(Reply):
    """A denied torrent."""

    info_hash: Hex
    reason: str = Field(description="Clients show it to their users.")


class ListedDenial(DenialRow):
    """An entry of the deny list."""

    since: Moment


class DenialPut(Body):
    """Why a torrent is denied."""

    reason: ReasonText = NOT_SERVED


@denial_endpoints.get("/denials", "List denied torrents", schema="DenialPage: A page of denied torrents, newest first.")
async def denials_list_all(call: Call, query: Paged) -> Page[ListedDenial]:
    """Denials that a site writes into Redis apply immediately and are listed a little later."""
    torrents = call.store.torrents
    items = [ListedDenial.from_record(each) for each in await torrents.denials(query.offset, query.limit)]
    return Page.of(query, items, await torrents.denial_count())


@denial_endpoints.put("/denials/{info_hash}", "Deny a torrent", "denial.add", missing="Not found.")
async def denials_deny(call: Call, info_hash: InfoHashText, body: DenialPut) -> DenialRow:
    """Applies immediately, and to both halves of a hybrid torrent. Its registration and statistics stay."""
    wanted = parse_info_hash(info_hash)
    await deny_torrent(call.store, wanted, body.reason)
    return DenialRow(info_hash=wanted.hex(), reason=body.reason)


@denial_endpoints.delete(
    "/denials/{info_hash}", "Allow a torrent again", "denial.remove", missing="The torrent is not denied."
)
async def denials_allow(call: Call, info_hash: InfoHashText) -> None:
    """Both halves of a hybrid torrent."""
    existing(await allow_torrent(call.store, parse_info_hash(info_hash)), "denial")
