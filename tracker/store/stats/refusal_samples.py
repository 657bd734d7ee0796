"""Samples of refused announces: the last few of each reason, with client and torrent, for the dashboard. They are a
sample, not a log: at most MAX_KEPT of each reason are kept. No address and no passkey is in them."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.store.sharding.shards import Part
from tracker.system.logger import Logger

MAX_KEPT = 50
"""Samples kept per reason."""
LIFETIME_SECONDS = 7 * 86_400
_USER_ID = re.compile("[1-9][0-9]{0,14}")

log = Logger("tracker.store")


class RefusedAnnounce(NamedTuple):
    """``at``: epoch seconds; ``client``: the program that the peer id names; ``user_id``: empty if there is none."""

    at: int
    info_hash: InfoHash
    client: str
    user_id: str = ""


class RefusalSamples(Part):
    """Methods raise StoreUnavailable and RedisError."""

    async def add(self, samples: Mapping[str, Sequence[RefusedAnnounce]]) -> None:
        """Adds samples by reason, oldest first. Each reason keeps its last MAX_KEPT."""
        commands: list[tuple[str | int, ...]] = []
        for reason, announces in samples.items():
            key = self._keys.refused(reason)
            entries = [f"{each.at} {each.info_hash.hex()} {each.user_id or '-'} {each.client}" for each in announces]
            commands += [("LPUSH", key, *entries), ("LTRIM", key, 0, MAX_KEPT - 1), ("EXPIRE", key, LIFETIME_SECONDS)]
        wrong = [reply for reply in await self._connection.pipeline(*commands) if isinstance(reply, RedisError)]
        if wrong:
            log.error("samples of refused announces were not written", error=str(wrong[0]))

    async def user_ids(self, passkeys: Sequence[str]) -> dict[str, str]:
        """The user ids of those passkeys that have one."""
        found = await self._connection.pipeline(*(("HGET", self._keys.passkey(each), "user_id") for each in passkeys))
        ids = (reply.decode("latin-1") if isinstance(reply, bytes) else "" for reply in found)
        return {passkey: id for passkey, id in zip(passkeys, ids, strict=True) if _USER_ID.fullmatch(id)}

    async def last(self, reason: str) -> list[RefusedAnnounce]:
        """The kept samples of a reason, newest first."""
        entries = await self._connection.command("LRANGE", self._keys.refused(reason), 0, MAX_KEPT - 1)
        return [sample for entry in entries if (sample := _parsed(entry)) is not None]


def _parsed(entry: bytes) -> RefusedAnnounce | None:
    """None for an entry that is not ours."""
    try:
        at, info_hash, user_id, client = entry.decode("utf-8", "replace").split(" ", 3)
        known = user_id if _USER_ID.fullmatch(user_id) else ""
        return RefusedAnnounce(int(at), parse_info_hash(info_hash), client, known)
    except (ValueError, ClientError):
        return None
