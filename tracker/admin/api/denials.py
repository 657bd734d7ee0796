"""/denials: torrents that are forbidden, registered or not."""

from pydantic import Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Body, Call, Endpoints
from tracker.admin.api.models import InfoHashText, Moment, OffsetPage, Paged, ReasonText, page_of
from tracker.admin.api.routing import not_found
from tracker.bittorrent import parse_info_hash

endpoints = Endpoints("denials", "Torrents that are forbidden, whether they are registered or not.")


class DenialRow(Answer):
    """A forbidden torrent."""

    info_hash: str
    reason: str = Field(description="Shown to whoever announces it.")


class ListedDenial(DenialRow):
    """A forbidden torrent of the list."""

    since: Moment


class DenialPage(OffsetPage[ListedDenial]):
    """A page of forbidden torrents, the last forbidden first."""


class DenialPut(Body):
    """Why a torrent is forbidden."""

    reason: ReasonText = operations.NOT_SERVED


@endpoints.get("/denials", "List forbidden torrents")
async def list_all(call: Call, query: Paged) -> DenialPage:
    """What a site wrote into Redis by itself holds at once, and is listed a little later."""
    torrents = call.stores.torrents
    found = await torrents.denials(query.offset, query.limit)
    items = [
        ListedDenial(info_hash=each.info_hash.hex(), reason=each.reason, since=int(each.since))
        for each in found
    ]
    return DenialPage(**page_of(query, items, await torrents.denial_count()))


@endpoints.put("/denials/{info_hash}", "Forbid a torrent")
async def deny(call: Call, info_hash: InfoHashText, body: DenialPut) -> DenialRow:
    """From the very next announce; its registration and figures stay."""
    wanted = parse_info_hash(info_hash)
    await call.stores.torrents.deny(wanted, body.reason)
    return DenialRow(info_hash=wanted.hex(), reason=body.reason)


@endpoints.delete(
    "/denials/{info_hash}", "Allow a torrent again", errors={404: "The torrent is not forbidden."}
)
async def allow(call: Call, info_hash: InfoHashText) -> None:
    if not await call.stores.torrents.allow(parse_info_hash(info_hash)):
        raise not_found("denial")
