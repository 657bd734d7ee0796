"""``tracker deny``, ``tracker allow`` and ``tracker denied``."""

from typing import Annotated

from typer import Option

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import EVERYTHING, InfoHash, LimitOrAll, Pages, each, in_order, lists
from tracker.cli.terminal import Moment
from tracker.errors import ClientError
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent
from tracker.store.store import Store


@each("denial.add", "torrent")
async def deny(
    store: Store, info_hash: InfoHash, reason: Annotated[str, Option(help="Reason shown to clients.")] = NOT_SERVED
) -> str:
    """Put torrents on the deny list, registered or not, from the next announce on; both halves of hybrid ones."""
    await deny_torrent(store, parse_info_hash(info_hash), reason)
    return f"denied {info_hash}"


@each("denial.remove", "torrent")
async def allow(store: Store, info_hash: InfoHash) -> str:
    """Remove torrents from the deny list, both halves of hybrid ones."""
    if not await allow_torrent(store, parse_info_hash(info_hash)):
        raise ClientError("is not on the deny list")
    return f"allowed {info_hash}"


@lists("info_hash:40 reason since:20")
async def denied(store: Store, limit: LimitOrAll = EVERYTHING) -> Pages:
    """List denied torrents with reason and date, newest first."""
    async for page in in_order(limit, store.torrents.denials):
        yield ({"info_hash": each.info_hash.hex(), "reason": each.reason, "since": Moment(each.since)} for each in page)
