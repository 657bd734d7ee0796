"""``tracker freeleech …``."""

import time
from functools import partial
from typing import Annotated

from typer import Argument, Option

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import EVERYTHING, InfoHash, Pages, audited, checks, group, in_order, lists
from tracker.cli.terminal import Moment, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import freeleech_tokens
from tracker.store.schema.multipliers import parse_end
from tracker.store.store import Store
from tracker.store.torrents.torrents import Torrent

UserId = Annotated[str, Argument(metavar="USER", help="User id.")]

freeleech = group("Give users freeleech tokens: downloads of one torrent that do not count.")


@freeleech.command("give")
@checks(lambda until: parse_end(until, time.time()))
@audited("freeleech.give")
async def give_token(
    store: Store,
    change: Change,
    user_id: UserId,
    info_hash: InfoHash,
    until: Annotated[
        str,
        Option(
            metavar="WHEN",
            help="3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC).",
            show_default="without an end",
        ),
    ] = "",
) -> None:
    """Give a token, or change the end of the one that the user has."""
    end = parse_end(until, time.time())
    torrent = await _touched(store, change, user_id, info_hash)
    await store.freeleech.give(user_id, torrent.torrent_id, end)
    says = "without an end" if end is None else f"until {Moment(end)}"
    say(f"user {user_id} downloads {info_hash} freely {says}")


@freeleech.command("revoke")
@audited("freeleech.revoke")
async def revoke_token(store: Store, change: Change, user_id: UserId, info_hash: InfoHash) -> None:
    """Take a token back."""
    torrent = await _touched(store, change, user_id, info_hash)
    if not await store.freeleech.take_back(user_id, torrent.torrent_id):
        raise ClientError(f"user {user_id} has no token for this torrent")
    say(f"took back the token of user {user_id}")


async def _touched(store: Store, change: Change, user_id: str, info_hash: str) -> Torrent:
    await change.touch("user", user_id)
    await change.touch("torrent", info_hash)
    return await counting_torrent(store, parse_info_hash(info_hash))


@freeleech.command("list")
@lists("until:20 info_hash:40 name")
async def list_tokens(store: Store, user_id: UserId) -> Pages:
    """List the tokens of a user that have not ended, the next to end first."""
    async for page in in_order(EVERYTHING, partial(freeleech_tokens, store, user_id)):
        yield ({**token, "until": token["until"] and Moment(token["until"])} for token in page)
