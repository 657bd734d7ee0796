"""/denials: the deny list."""

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Hex, InfoHashText, Moment, Page, Paged, ReasonText
from tracker.bittorrent import parse_info_hash
from tracker.errors import existing
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent

endpoints = Endpoints("denials", "The deny list: torrents that are refused even if registered.")


class DenialRow(Reply):
    """A denied torrent."""

    info_hash: Hex
    reason: str = Field(description="Clients show it to their users.")


class ListedDenial(DenialRow):
    """An entry of the deny list."""

    since: Moment


class DenialPage(Page[ListedDenial]):
    """A page of denied torrents, newest first."""


class DenialPut(Body):
    """Why a torrent is denied."""

    reason: ReasonText = NOT_SERVED


@endpoints.get("/denials", "List denied torrents")
async def list_all(call: Call, query: Paged) -> DenialPage:
    """Denials that a site writes into Redis apply immediately and are listed a little later."""
    torrents = call.store.torrents
    items = [ListedDenial.from_record(each) for each in await torrents.denials(query.offset, query.limit)]
    return DenialPage.of(query, items, await torrents.denial_count())


@endpoints.put("/denials/{info_hash}", "Deny a torrent", "denial.add", missing="Not found.")
async def deny(call: Call, info_hash: InfoHashText, body: DenialPut) -> DenialRow:
    """Applies immediately, and to both halves of a hybrid torrent. Its registration and statistics stay."""
    wanted = parse_info_hash(info_hash)
    await deny_torrent(call.store, wanted, body.reason)
    return DenialRow(info_hash=wanted.hex(), reason=body.reason)


@endpoints.delete(
    "/denials/{info_hash}", "Allow a torrent again", "denial.remove", missing="The torrent is not denied."
)
async def allow(call: Call, info_hash: InfoHashText) -> None:
    """Both halves of a hybrid torrent."""
    existing(await allow_torrent(call.store, parse_info_hash(info_hash)), "denial")
