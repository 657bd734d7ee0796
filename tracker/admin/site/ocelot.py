"""The calls of Gazelle to its tracker Ocelot: GET /<key>/update?action=... and /<report key>/report?get=..."""

from typing import Annotated, Literal
from urllib.parse import unquote_to_bytes

from pydantic import BeforeValidator, Field, ValidationError

from tracker.admin.site.changes import (
    Passkey,
    SiteCall,
    action,
    change_client,
    delete_torrent,
    give_token,
    known_torrent,
    known_user,
    save_torrent,
    save_user,
)
from tracker.bittorrent import HASH_LENGTH, InfoHash
from tracker.errors import ClientError, existing
from tracker.operations.torrents import allow_torrent, change_torrent_rule, deny_torrent
from tracker.settings.model import with_values
from tracker.store.swarms.reaping import NO_PEERS, read_peer_counts
from tracker.store.torrents.torrents import MAX_OWN_ID
from tracker.system.logger import Logger

PASSKEY_LENGTH = 32
FACTORS = {0: (1, 1), 1: (1, 0), 2: (0, 0)}
"""(of upload, of download) by `freetorrent`: normal, freeleech, neutral."""
DELETED = (
    *("Dupe", "Trump", "Bad file names", "Bad folder names", "Bad tags", "Disallowed format", "Discs missing"),
    *("Discography", "Edited log", "Inaccurate bitrate", "Low bitrate", "Mutt rip", "Disallowed source"),
    *("Encode errors", "Specifically banned", "Tracks missing", "Transcode", "Unapproved cassette"),
    *("Unsplit album", "User compilation", "Wrong format", "Wrong media", "Audience recording"),
)
"""What clients show of a deleted torrent, by the number of the reason."""
DISABLED = "your account is disabled on the site"

log = Logger("tracker.site")


def _info_hash(text: object) -> InfoHash:
    raw = text.encode("latin-1") if isinstance(text, str) else b""
    if len(raw) != HASH_LENGTH:
        raise ValueError("an info hash is 20 bytes, percent-encoded")
    return InfoHash(raw)


def _cut(text: object, length: int) -> list[str]:
    if not isinstance(text, str) or not text or len(text) % length:
        raise ValueError(f"each has {length} characters, one after the other")
    return [text[first : first + length] for first in range(0, len(text), length)]


Hash = Annotated[InfoHash, BeforeValidator(_info_hash)]
Hashes = Annotated[tuple[Hash, ...], BeforeValidator(lambda text: _cut(text, HASH_LENGTH))]
Passkeys = Annotated[tuple[Passkey, ...], BeforeValidator(lambda text: _cut(text, PASSKEY_LENGTH))]
Id = Annotated[int, Field(ge=1, le=10**15 - 1)]
TorrentId = Annotated[int, Field(ge=1, le=MAX_OWN_ID)]
Flag = Literal["0", "1"]
Kind = Annotated[int, Field(ge=0, le=2)]
Prefix = Annotated[str, Field(min_length=1)]


async def add_torrent(call: SiteCall, info_hash: Hash, id: TorrentId, freetorrent: Kind = 0) -> None:
    is_new = not await call.store.torrents.registered([info_hash])
    await save_torrent(call, id, info_hash, {"enabled": "1"}, call.rule("", *FACTORS[freetorrent]))
    if is_new:
        await allow_torrent(call.store, info_hash)  # it was deleted before


async def update_torrent(call: SiteCall, info_hash: Hash, freetorrent: Kind) -> None:
    await known_torrent(call, info_hash)
    await change_torrent_rule(call.store, info_hash, call.rule("", *FACTORS[freetorrent]))


async def update_torrents(call: SiteCall, info_hashes: Hashes, freetorrent: Kind) -> None:
    """Unknown ones are left out."""
    for info_hash in await call.store.torrents.registered(info_hashes):
        await update_torrent(call, info_hash, freetorrent)


async def remove_torrent(call: SiteCall, info_hash: Hash, reason: int = -1) -> None:
    """Peers are told the reason if it has a text."""
    await delete_torrent(call, info_hash)
    if 0 <= reason < len(DELETED):
        await deny_torrent(call.store, info_hash, f"Unregistered torrent: {DELETED[reason]}")


async def info_torrent(call: SiteCall, info_hash: Hash) -> None:
    await known_torrent(call, info_hash)


async def add_user(call: SiteCall, passkey: Passkey, id: Id, visible: Flag = "1") -> None:
    await save_user(call, id, passkey, {"enabled": True, "visible": visible == "1"})


async def update_user(call: SiteCall, passkey: Passkey, can_leech: Flag, visible: Flag = "1") -> None:
    user = await known_user(call, passkey)
    await call.store.users.edit(user.user_id, {"can_leech": can_leech == "1", "visible": visible == "1"})


async def remove_user(call: SiteCall, passkey: Passkey) -> None:
    """Gazelle removes a disabled user, and adds the user again later: totals and history stay. An unknown user is
    removed already."""
    if (user := await call.store.users.get(passkey)) is not None:
        await call.change.touch("user", user.user_id)
        await call.store.users.edit(user.user_id, {"enabled": False, "reason": DISABLED})


async def remove_users(call: SiteCall, passkeys: Passkeys) -> None:
    for passkey in passkeys:
        await remove_user(call, passkey)


async def change_passkey(call: SiteCall, oldpasskey: Passkey, newpasskey: Passkey) -> None:
    """Also if it is done already, because a site repeats a call that was not answered."""
    if await call.store.users.get(oldpasskey) is None and await call.store.users.get(newpasskey):
        return
    user = await known_user(call, oldpasskey)
    await call.store.users.rotate(user.passkey, newpasskey)


async def add_token(call: SiteCall, info_hash: Hash, userid: Id) -> None:
    await give_token(call, userid, await known_torrent(call, info_hash))


async def remove_token(call: SiteCall, info_hash: Hash, userid: Id) -> None:
    torrent = await known_torrent(call, info_hash)
    user = await known_user(call, str(userid))
    await call.store.freeleech.take_back(user.user_id, torrent.torrent_id)


async def set_client(call: SiteCall, peer_id: Prefix, *, allowed: bool) -> None:
    allow_list = call.store.allow_list
    await change_client(call, peer_id.encode("latin-1"), allow_list.add if allowed else allow_list.remove)


async def edit_client(call: SiteCall, old_peer_id: Prefix, new_peer_id: Prefix) -> None:
    await set_client(call, new_peer_id, allowed=True)
    await set_client(call, old_peer_id, allowed=False)


async def set_interval(call: SiteCall, new_announce_interval: Id) -> None:
    """Until this tracker restarts, as in Ocelot."""
    current, name = call.context.settings, "interval_seconds"
    if new_announce_interval < current.announce.min_interval_seconds:
        raise ClientError("TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS is longer than this interval")
    try:
        call.apply(with_values(current, {"announce": {name: new_announce_interval}}))
    except ValidationError as error:
        raise ClientError("TRACKER_ANNOUNCE__INTERVAL_SECONDS does not allow this interval") from error
    log.info("announce interval changed until a restart", seconds=new_announce_interval)


ACTIONS = {
    "add_torrent": action(add_torrent, "torrent.add"),
    "update_torrent": action(update_torrent, "torrent.edit"),
    "update_torrents": action(update_torrents, "torrent.edit"),
    "delete_torrent": action(remove_torrent, "torrent.remove"),
    "info_torrent": action(info_torrent),
    "add_user": action(add_user, "user.add"),
    "update_user": action(update_user, "user.edit"),
    "remove_user": action(remove_user, "user.edit"),
    "remove_users": action(remove_users, "user.edit"),
    "change_passkey": action(change_passkey, "user.rotate"),
    "add_token": action(add_token, "freeleech.give"),
    "remove_token": action(remove_token, "freeleech.revoke"),
    "add_whitelist": action(set_client, "client.allow", allowed=True),
    "remove_whitelist": action(set_client, "client.disallow", allowed=False),
    "edit_whitelist": action(edit_client, "client.allow"),
    "update_announce_interval": action(set_interval),
}


async def report(call: SiteCall, fields: dict[str, str]) -> str:
    """The text of a report: a number and what it counts in each line."""
    if fields.get("get") == "stats":
        return await _stats(call)
    if fields.get("get") != "user":
        raise ClientError("a report is get=stats or get=user")
    user = existing(await call.store.users.get(fields.get("key", "")), "user")
    seeding, leeching = await call.store.users.torrents_at_once(user.user_id)
    return f"{leeching} leeching\n{seeding} seeding\n"


async def _stats(call: SiteCall) -> str:
    found, seconds = call.context.telemetry(), int(call.context.clock() - call.rates.started_at)
    days, hours = divmod(seconds // 3600, 24)
    peers = await read_peer_counts(call.store.shards) or NO_PEERS
    lines = (
        f"Uptime: {days} days, {hours:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
        f"{int(found.gauges.get('connections', 0))} open connections",
        f"{found.counts.get('requests', 0)} requests handled",
        f"{round(call.rates.per_second['requests', 10])} requests/s",
        f"{found.counts.get('announces', 0)} successful announcements",
        f"{found.counts.get('refused.announces', 0)} failed announcements",
        f"{found.counts.get('scrapes', 0)} scrapes",
        f"{peers.leechers} leechers tracked",
        f"{peers.seeders} seeders tracked",
    )
    return "".join(f"{line}\n" for line in lines)


def read_query(raw_path: str) -> dict[str, str]:
    """Each byte is a character, as info hashes are no text; ``+`` stays as it is. The first value of a name counts."""
    fields: dict[str, str] = {}
    for part in raw_path.partition("?")[2].split("&"):
        name, _, value = part.partition("=")
        fields.setdefault(name, unquote_to_bytes(value).decode("latin-1"))
    return fields
