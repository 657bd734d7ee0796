"""The calls of UNIT3D: JSON bodies at /announce/<key>/..., and what each of them does."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tracker.admin.site.changes import (
    Passkey,
    SiteCall,
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
from tracker.store.torrents.records import Enabled, Peer, Torrent
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
TorrentId = Annotated[int, Field(strict=True, ge=1, le=MAX_OWN_ID)]
Count = Annotated[int, Field(strict=True, ge=0)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
Hash = Annotated[InfoHash, BeforeValidator(lambda text: of_text(parse_info_hash, text))]


class Body(BaseModel):
    """Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, arbitrary_types_allowed=True)


class TorrentBody(Body):
    """``seeders`` and ``leechers`` are not read: the tracker counts its own."""

    id: TorrentId
    status: Literal[0, 1, 2, 3]
    info_hash: Hash
    is_deleted: Flag
    seeders: Count
    leechers: Count
    times_completed: Count
    download_factor: Annotated[int, Field(strict=True, ge=0, le=MAX_FACTOR)]
    upload_factor: Annotated[int, Field(strict=True, ge=0, le=MAX_FACTOR)]

    @property
    def switch(self) -> tuple[Enabled, str]:
        """Whether announces are accepted, and what clients show."""
        if self.is_deleted:
            return False, DELETED
        return (True, "") if self.status == 1 else ("pending", WAITING[self.status])


class TorrentKey(Body):
    id: Id
    info_hash: Hash


class UserBody(Body):
    """``num_seeding`` and ``num_leeching`` are not read: the tracker counts its own."""

    id: Id
    group_id: Annotated[int, Field(strict=True, ge=1, le=999_999_999)]
    passkey: Passkey
    new_passkey: Passkey | None = None
    can_download: Flag
    is_donor: Flag
    is_lifetime: Flag
    num_seeding: Count
    num_leeching: Count


class UserKey(Body):
    id: Id
    passkey: Text


class GroupBody(Body):
    id: Annotated[int, Field(strict=True, ge=1, le=999_999_999)]
    slug: Text
    download_slots: Annotated[int, Field(strict=True, ge=0, le=999_999)] | None = None
    is_immune: Flag
    is_freeleech: Flag
    is_double_upload: Flag


class GroupKey(Body):
    id: Annotated[int, Field(strict=True, ge=1, le=999_999_999)]


class AgentBody(Body):
    peer_id_prefix: Annotated[str, Field(strict=True, min_length=1)]


class TokenBody(Body):
    user_id: Id
    torrent_id: Id


class PersonalBody(Body):
    user_id: Id


class FeaturedBody(Body):
    torrent_id: Id


# Torrents


async def put_torrent(call: SiteCall, body: TorrentBody) -> None:
    enabled, reason = body.switch
    fields = torrent_fields(enabled=enabled, reason=reason, snatches=body.times_completed)
    rule = call.rule("", body.upload_factor / 100, body.download_factor / 100)
    await save_torrent(call, body.id, body.info_hash, fields, rule)


async def remove_torrent(call: SiteCall, body: TorrentKey) -> None:
    await delete_torrent(call, body.info_hash)


async def show_torrent(call: SiteCall, torrent_id: int) -> Mapping[str, object]:
    torrent = await torrent_of_id(call.store, torrent_id)
    return {
        "id": torrent_id,
        "status": _status(torrent),
        "is_deleted": not torrent.enabled and torrent.reason == DELETED,
        "peers": await _peers(call, torrent),
        "seeders": torrent.seeders,
        "leechers": torrent.leechers,
        "times_completed": torrent.completions,
        "download_factor": _percent(torrent.download_multiplier),
        "upload_factor": _percent(torrent.upload_multiplier),
    }


def _status(torrent: Torrent) -> str:
    waiting = [number for number, reason in WAITING.items() if reason == torrent.reason]
    return STATUSES[waiting[0] if waiting else int(not torrent.pending)]


def _percent(rules: Rules) -> int:
    """Without rules that have a name, such as that of a featured torrent."""
    return round(100 * next((rule for rule in rules if not rule.name), Multiplier()).factor)


async def _peers(call: SiteCall, torrent: Torrent) -> dict[str, Mapping[str, object]]:
    hidden = await call.store.groups.hidden_users()
    found: dict[str, Mapping[str, object]] = {}
    cursor: int | None = None
    while cursor != 0 and len(found) < MAX_PEERS:
        cursor, peers = await call.store.torrents.peers(torrent, cursor or 0, _PEERS_A_CALL)
        found |= {f"{_number(peer, 'user_id')}-{peer.peer_id.hex()}": _peer(peer, hidden) for peer in peers}
    return found


def _peer(peer: Peer, hidden: Collection[str]) -> Mapping[str, object]:
    endpoint = peer.endpoints[0] if peer.endpoints else bytes(6)
    return {
        "ip_address": format_address(endpoint[:-2]),
        "port": int.from_bytes(endpoint[-2:], "big"),
        "is_seeder": peer.seeding,
        "is_active": True,
        "is_visible": peer.fields.get("user_id") not in hidden,
        "updated_at": _number(peer, "last_announce"),
        "uploaded": _number(peer, "uploaded"),
        "downloaded": _number(peer, "downloaded"),
    }


def _number(peer: Peer, name: str) -> int:
    return to_integer(peer.fields.get(name))


# Users, groups and their rules


async def put_user(call: SiteCall, body: UserBody) -> None:
    passkey = body.new_passkey or body.passkey
    await save_user(call, body.id, passkey, {"can_leech": body.can_download, "group": body.group_id})
    for name, free in ((DONOR, body.is_donor), (LIFETIME, body.is_lifetime)):
        await call.store.users.change_rule(passkey, call.rule(name, download=int(not free)))


async def remove_user(call: SiteCall, body: UserKey) -> None:
    """Also of a user who is unknown, because a site repeats a call that was not answered."""
    await call.change.touch("user", str(body.id))
    with suppress(UnknownUser):
        await call.store.users.delete(str(body.id))


async def show_user(call: SiteCall, user_id: int) -> Mapping[str, object]:
    store, who = call.store, str(user_id)
    user = existing(await store.users.by_id(who), "user")
    seeding, leeching = await store.users.torrents_at_once(who)
    names = {rule.name for rule in user.download_multiplier if not rule.factor}
    seed_lists, leech_lists = await store.user_peers.lists(who)
    return {
        "id": user_id,
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


async def put_group(call: SiteCall, body: GroupBody) -> None:
    await call.change.touch("group", str(body.id))
    fields: dict[str, Value] = {
        "name": body.slug,
        "may_announce": body.slug not in MAY_NOT_ANNOUNCE,
        "can_leech": body.download_slots != 0,
        "max_downloads": body.download_slots or 0,
        "hnr_exempt": body.is_immune,
        "download_multiplier": "0" if body.is_freeleech else "1",
        "upload_multiplier": "2" if body.is_double_upload else "1",
    }
    await call.store.groups.save(body.id, fields, replace=True)


async def remove_group(call: SiteCall, body: GroupKey) -> None:
    await call.change.touch("group", str(body.id))
    await call.store.groups.delete(body.id)


async def put_agent(call: SiteCall, body: AgentBody) -> None:
    await change_client(call, body.peer_id_prefix.encode(), call.store.deny_list.add)


async def remove_agent(call: SiteCall, body: AgentBody) -> None:
    await change_client(call, body.peer_id_prefix.encode(), call.store.deny_list.remove)


async def put_token(call: SiteCall, body: TokenBody) -> None:
    await give_token(call, body.user_id, await torrent_of_id(call.store, body.torrent_id))


async def put_personal(call: SiteCall, body: PersonalBody, download: float = 0) -> None:
    user = await known_user(call, str(body.user_id))
    await call.store.users.change_rule(user.passkey, call.rule(PERSONAL, download=download))


async def put_featured(call: SiteCall, body: FeaturedBody, factors: tuple[int, int] = (2, 0)) -> None:
    """``factors``: of upload and of download; both 1: no longer."""
    torrent = await torrent_of_id(call.store, body.torrent_id)
    await call.change.touch("torrent", torrent.info_hash.hex())
    await change_torrent_rule(call.store, torrent.info_hash, call.rule(FEATURED, *factors))


async def show_stats(call: SiteCall) -> Mapping[str, float]:
    return call.rates.shown()


@dataclass(frozen=True, slots=True)
class Unit3dCall:
    """``operation`` is its name in the audit log; empty: it changes nothing."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Mapping[str, object] | None]]
    body: type[Body] | None = None
    operation: str = ""


CALLS = (
    Unit3dCall("PUT", "torrents", put_torrent, TorrentBody, "torrent.edit"),
    Unit3dCall("DELETE", "torrents", remove_torrent, TorrentKey, "torrent.remove"),
    Unit3dCall("GET", "torrents/{id:[0-9]{1,20}}", show_torrent),
    Unit3dCall("PUT", "users", put_user, UserBody, "user.edit"),
    Unit3dCall("DELETE", "users", remove_user, UserKey, "user.delete"),
    Unit3dCall("GET", "users/{id:[0-9]{1,20}}", show_user),
    Unit3dCall("PUT", "groups", put_group, GroupBody, "group.set"),
    Unit3dCall("DELETE", "groups", remove_group, GroupKey, "group.delete"),
    Unit3dCall("PUT", "blacklisted-agents", put_agent, AgentBody, "client.deny"),
    Unit3dCall("DELETE", "blacklisted-agents", remove_agent, AgentBody, "client.undeny"),
    Unit3dCall("PUT", "freeleech-tokens", put_token, TokenBody, "freeleech.give"),
    Unit3dCall("PUT", "personal-freeleech", put_personal, PersonalBody, "user.edit"),
    Unit3dCall("DELETE", "personal-freeleech", partial(put_personal, download=1), PersonalBody, "user.edit"),
    Unit3dCall("PUT", "featured-torrents", put_featured, FeaturedBody, "torrent.edit"),
    Unit3dCall("DELETE", "featured-torrents", partial(put_featured, factors=(1, 1)), FeaturedBody, "torrent.edit"),
    Unit3dCall("GET", "stats", show_stats),
)
"""Paths after ``/announce/<key>/``."""
