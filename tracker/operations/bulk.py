"""One change of several torrents or users, as the lists of the dashboard make it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, get_args

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.operations.torrents import allow_torrent, deny_torrent, edit_torrent, remove_torrent, torrent_fields
from tracker.store.store import Store
from tracker.store.torrents.records import Enabled
from tracker.store.users.fields import Value
from tracker.system.torrent_files import TorrentFiles

TorrentAction = Literal["enable", "pend", "disable", "deny", "allow", "remove"]
TORRENT_ACTIONS: tuple[TorrentAction, ...] = get_args(TorrentAction)
UserAction = Literal["enable", "disable", "allow_leech", "block_leech", "forgive", "delete"]
USER_ACTIONS: tuple[UserAction, ...] = get_args(UserAction)
_SWITCHES: dict[TorrentAction, Enabled] = {"enable": True, "pend": "pending", "disable": False}


async def change_torrents(
    store: Store, files: TorrentFiles, action: TorrentAction, info_hashes: Sequence[InfoHash], reason: str
) -> int:
    """Returns how many were changed; unknown torrents are left out. ``reason``: of ``disable`` and ``deny``."""

    async def change(info_hash: InfoHash) -> bool:
        if action == "remove":
            return await remove_torrent(store, files, info_hash)
        if action == "allow":
            return await allow_torrent(store, info_hash)
        if action == "deny":
            await deny_torrent(store, info_hash, reason)
            return True
        fields = torrent_fields(enabled=_SWITCHES[action], reason=(reason or None) if action == "disable" else None)
        try:
            await edit_torrent(store, info_hash, fields)
        except ClientError:
            return False
        return True

    return sum([await change(info_hash) for info_hash in info_hashes])


_RIGHTS: dict[UserAction, dict[str, Value]] = {
    "enable": {"enabled": True},
    "disable": {"enabled": False},
    "allow_leech": {"can_leech": True},
    "block_leech": {"can_leech": False},
}


async def change_users(store: Store, action: UserAction, user_ids: Sequence[str], reason: str) -> int:
    """Returns how many users were changed, or how many hit-and-runs were forgiven; unknown users are left out.
    ``reason``: of ``disable``."""
    changed, users = 0, store.users
    for user_id in user_ids:
        passkey = await users.passkey_of(user_id)
        if passkey is None:
            continue
        if action == "forgive":
            changed += await users.forgive(user_id)
            continue
        with suppress(ClientError):  # the user was deleted meanwhile
            if action == "delete":
                await users.delete(user_id)
            else:
                fields = _RIGHTS[action]
                await users.edit(passkey, {**fields, "reason": reason} if action == "disable" else fields)
            changed += 1
    return changed
