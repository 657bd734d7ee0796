"""The calls of UNIT3D: JSON bodies at /announce/<key>/..., and what each of them does."""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tracker.admin.site.changes import (
    Passkey,
    SiteCall,
    action,
    change_client,
    delete_torrent,
    give_token,
    known_user,
    of_text,
    save_torrent,
    save_user,
    torrent_of_id,
)
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import existing
from tracker.operations.peers import to_integer
from tracker.operations.torrents import change_torrent_rule, torrent_fields
from tracker.store.schema.multipliers import Multiplier, Rules
from tracker.store.torrents.records import Peer, Torrent
from tracker.store.torrents.torrents import MAX_OWN_ID
from tracker.store.users.fields import Value
from tracker.store.users.peers import SEEDER_SHARE, Lists
from tracker.store.users.users import UnknownUser
from tracker.wire.endpoint import format_address

MAX_ID = 10**15 - 1
MAX_FACTOR = 100_000
MAX_PEERS = 10_000
"""Peers in a reply to ``GET torrents/<id>``."""
_PEERS_A_CALL = 500
DAY_SECONDS = 86_400
STATUSES = ("Pending", "Approved", "Rejected", "Postponed")
WAITING = {0: "this torrent waits for approval", 2: "this torrent was rejected", 3: "this torrent was postponed"}
"""Reasons, by status. Clients ask again within half a minute, so that they begin soon after the approval."""
DELETED = "this torrent was deleted"
MAY_NOT_ANNOUNCE = frozenset({"banned", "validating", "disabled"})
FEATURED, PERSONAL, DONOR, LIFETIME = "featured", "personal", "donor", "lifetime"
"""Names of rules. They stand beside others, and the best for the user counts."""

Id = Annotated[int, Field(strict=True, ge=1, le=MAX_ID)]
GroupId = Annotated[int, Field(strict=True, ge=1, le=999_999_999)]
Factor = Annotated[int, Field(strict=True, ge=0, le=MAX_FACTOR)]
Slots = Annotated[int, Field(strict=True, ge=0, le=999_999)]
Status = Literal[0, 1, 2, 3]
Prefix = Annotated[str, Field(strict=True, min_length=1)]
TorrentId = Annotated[int, Field(strict=True, ge=1, le=MAX_OWN_ID)]
Count = Annotated[int, Field(strict=True, ge=0)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
Hash = Annotated[InfoHash, BeforeValidator(lambda text: of_text(parse_info_hash, text))]


# Torrents


async def put_torrent(
    call: SiteCall,
    *,
    id: TorrentId,
    status: Status,
    info_hash: Hash,
    is_deleted: Flag,
    seeders: Count,
    leechers: Count,
    times_completed: Count,
    download_factor: Factor,
    upload_factor: Factor,
) -> None:
    """``seeders`` and ``leechers`` are not read: the tracker counts its own."""
    if is_deleted:
        fields = torrent_fields(enabled=False, reason=DELETED, snatches=times_completed)
    elif status == 1:
        fields = torrent_fields(enabled=True, reason="", snatches=times_completed)
    else:
        fields = torrent_fields(enabled="pending", reason=WAITING[status], snatches=times_completed)
    rule = call.rule("", upload_factor / 100, download_factor / 100)
    await save_torrent(call, id, info_hash, fields, rule)


async def remove_torrent(call: SiteCall, id: Id, info_hash: Hash) -> None:
    await delete_torrent(call, info_hash)


async def show_torrent(call: SiteCall, id: int) -> Mapping[str, object]:
    torrent = await torrent_of_id(call.store, id)
    waiting = [number for number, reason in WAITING.items() if reason == torrent.reason]
    return {
        "id": id,
        "status": STATUSES[waiting[0] if waiting else int(not torrent.pending)],
        "is_deleted": not torrent.enabled and torrent.reason == DELETED,
        "peers": await _peers(call, torrent),
        "seeders": torrent.seeders,
        "leechers": torrent.leechers,
        "times_completed": torrent.completions,
        "download_factor": _percent(torrent.download_multiplier),
        "upload_factor": _percent(torrent.upload_multiplier),
    }


def _percent(rules: Rules) -> int:
    """Without rules that have a name, such as that of a featured torrent."""
    return round(100 * next((rule for rule in rules if not rule.name), Multiplier()).factor)


async def _peers(call: SiteCall, torrent: Torrent) -> dict[str, Mapping[str, object]]:
    hidden = await call.store.groups.hidden_users()
    found: dict[str, Mapping[str, object]] = {}
    cursor: int | None = None
    while cursor != 0 and len(found) < MAX_PEERS:
        cursor, peers = await call.store.torrents.peers(torrent, cursor or 0, _PEERS_A_CALL)
        found |= {
            f"{to_integer(peer.fields.get('user_id'))}-{peer.peer_id.hex()}": _peer(peer, hidden) for peer in peers
        }
    return found


def _peer(peer: Peer, hidden: Collection[str]) -> Mapping[str, object]:
    endpoint = peer.endpoints[0] if peer.endpoints else bytes(6)
    return {
        "ip_address": format_address(endpoint[:-2]),
        "port": int.from_bytes(endpoint[-2:], "big"),
        "is_seeder": peer.seeding,
        "is_active": True,
        "is_visible": peer.fields.get("user_id") not in hidden,
        "updated_at": to_integer(peer.fields.get("last_announce")),
        "uploaded": to_integer(peer.fields.get("uploaded")),
        "downloaded": to_integer(peer.fields.get("downloaded")),
    }


# Users, groups and their rules


async def put_user(
    call: SiteCall,
    *,
    id: Id,
    group_id: GroupId,
    passkey: Passkey,
    new_passkey: Passkey | None = None,
    can_download: Flag,
    is_donor: Flag,
    is_lifetime: Flag,
    num_seeding: Count,
    num_leeching: Count,
) -> None:
    """``num_seeding`` and ``num_leeching`` are not read: the tracker counts its own."""
    passkey = new_passkey or passkey
    await save_user(call, id, passkey, {"can_leech": can_download, "group": group_id})
    for name, free in ((DONOR, is_donor), (LIFETIME, is_lifetime)):
        await call.store.users.change_rule(passkey, call.rule(name, download=int(not free)))


async def remove_user(call: SiteCall, id: Id, passkey: Text) -> None:
    """Also of a user who is unknown, because a site repeats a call that was not answered."""
    await call.change.touch("user", str(id))
    with suppress(UnknownUser):
        await call.store.users.delete(str(id))


async def show_user(call: SiteCall, id: int) -> Mapping[str, object]:
    store, who = call.store, str(id)
    user = existing(await store.users.by_id(who), "user")
    seeding, leeching = await store.users.torrents_at_once(who)
    names = {rule.name for rule in user.download_multiplier if not rule.factor}
    seed_lists, leech_lists = await store.user_peers.lists(who)
    return {
        "id": id,
        "group_id": user.group or 0,
        "passkey": user.passkey,
        "can_download": user.can_leech,
        "is_donor": DONOR in names,
        "is_lifetime": LIFETIME in names,
        "num_seeding": seeding,
        "num_leeching": leeching,
        "receive_seed_list_rates": _rates(call, seed_lists, SEEDER_SHARE),
        "receive_leech_list_rates": _rates(call, leech_lists, 1),
    }


def _rates(call: SiteCall, lists: Lists, share: int) -> Mapping[str, object]:
    """Peer lists of a user, and how many are allowed: at once, with the seconds until all are there again, and in a
    day. A limit that is off is left out."""
    users, now = call.context.settings.users, call.context.clock()
    rates: list[tuple[float, float, int]] = []
    if users.peer_lists_at_once and users.peer_lists_per_minute:
        most, step = users.peer_lists_at_once / share, 60 * share / users.peer_lists_per_minute
        used = most - min(most, max(0.0, (now - lists.used_until) / step))
        rates.append((used, most, math.ceil(most * step)))
    if users.peer_lists_per_day:
        today = lists.number if lists.day == int(now // DAY_SECONDS) else 0
        rates.append((float(today), users.peer_lists_per_day / share, DAY_SECONDS))
    return {
        "rates": [
            {"count": count, "max_count": most, "window": window, "updated_at": int(now)}
            for count, most, window in rates
        ]
    }


async def put_group(
    call: SiteCall,
    *,
    id: GroupId,
    slug: Text,
    download_slots: Slots | None = None,
    is_immune: Flag,
    is_freeleech: Flag,
    is_double_upload: Flag,
) -> None:
    await call.change.touch("group", str(id))
    fields: dict[str, Value] = {
        "name": slug,
        "may_announce": slug not in MAY_NOT_ANNOUNCE,
        "can_leech": download_slots != 0,
        "max_downloads": download_slots or 0,
        "hnr_exempt": is_immune,
        "download_multiplier": "0" if is_freeleech else "1",
        "upload_multiplier": "2" if is_double_upload else "1",
    }
    await call.store.groups.save(id, fields, replace=True)


async def remove_group(call: SiteCall, id: GroupId) -> None:
    await call.change.touch("group", str(id))
    await call.store.groups.delete(id)


async def set_agent(call: SiteCall, peer_id_prefix: Prefix, *, denied: bool) -> None:
    deny_list = call.store.deny_list
    await change_client(call, peer_id_prefix.encode(), deny_list.add if denied else deny_list.remove)


async def put_token(call: SiteCall, user_id: Id, torrent_id: Id) -> None:
    await give_token(call, user_id, await torrent_of_id(call.store, torrent_id))


async def set_personal(call: SiteCall, user_id: Id, factor: int) -> None:
    user = await known_user(call, str(user_id))
    await call.store.users.change_rule(user.passkey, call.rule(PERSONAL, download=factor))


async def set_featured(call: SiteCall, torrent_id: Id, upload: int, download: int) -> None:
    torrent = await torrent_of_id(call.store, torrent_id)
    await call.change.touch("torrent", torrent.info_hash.hex())
    await change_torrent_rule(call.store, torrent.info_hash, call.rule(FEATURED, upload, download))


async def show_stats(call: SiteCall) -> Mapping[str, float]:
    return call.rates.shown()


CALLS = {
    ("PUT", "torrents"): action(put_torrent, "torrent.edit"),
    ("DELETE", "torrents"): action(remove_torrent, "torrent.remove"),
    ("GET", "torrents/{id:[0-9]{1,20}}"): action(show_torrent),
    ("PUT", "users"): action(put_user, "user.edit"),
    ("DELETE", "users"): action(remove_user, "user.delete"),
    ("GET", "users/{id:[0-9]{1,20}}"): action(show_user),
    ("PUT", "groups"): action(put_group, "group.set"),
    ("DELETE", "groups"): action(remove_group, "group.delete"),
    ("PUT", "blacklisted-agents"): action(set_agent, "client.deny", denied=True),
    ("DELETE", "blacklisted-agents"): action(set_agent, "client.undeny", denied=False),
    ("PUT", "freeleech-tokens"): action(put_token, "freeleech.give"),
    ("PUT", "personal-freeleech"): action(set_personal, "user.edit", factor=0),
    ("DELETE", "personal-freeleech"): action(set_personal, "user.edit", factor=1),
    ("PUT", "featured-torrents"): action(set_featured, "torrent.edit", upload=2, download=0),
    ("DELETE", "featured-torrents"): action(set_featured, "torrent.edit", upload=1, download=1),
    ("GET", "stats"): action(show_stats),
}
"""By method, and path after ``/announce/<key>/``."""
