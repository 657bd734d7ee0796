"""Samples of refused announces: the last few of each reason, with client and torrent, for the dashboard.

They are a sample, not a log: at most MAX_KEPT of each reason are kept. No address is in them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog
from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys

MAX_KEPT = 50
"""Of each reason."""
LIFETIME_SECONDS = 7 * 86_400

log = structlog.get_logger("tracker.store")


class RefusedAnnounce(NamedTuple):
    """``at``: epoch seconds; ``client``: the program that the peer id names."""

    at: int
    info_hash: InfoHash
    client: str


class RefusalSamples:
    """Methods raise StoreUnavailable and RedisError."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def add(self, samples: Mapping[str, Sequence[RefusedAnnounce]]) -> None:
        """Adds samples by reason, oldest first. Each reason keeps its last MAX_KEPT."""
        commands: list[tuple[str | int, ...]] = []
        for reason, announces in samples.items():
            key = self._keys.refused(reason)
            entries = [f"{each.at} {each.info_hash.hex()} {each.client}" for each in announces]
            commands += [
                ("LPUSH", key, *entries),
                ("LTRIM", key, 0, MAX_KEPT - 1),
                ("EXPIRE", key, LIFETIME_SECONDS),
            ]
        wrong = [
            reply for reply in await self._connection.pipeline(*commands) if isinstance(reply, RedisError)
        ]
        if wrong:
            log.error("samples of refused announces were not written", error=str(wrong[0]))

    async def last(self, reason: str) -> list[RefusedAnnounce]:
        """The kept samples of a reason, newest first."""
        entries = await self._connection.command("LRANGE", self._keys.refused(reason), 0, MAX_KEPT - 1)
        return [sample for entry in entries if (sample := _parsed(entry)) is not None]


def _parsed(entry: bytes) -> RefusedAnnounce | None:
    """None for an entry that is not ours."""
    at, _, rest = entry.decode("utf-8", "replace").partition(" ")
    info_hash, _, client = rest.partition(" ")
    try:
        return RefusedAnnounce(int(at), parse_info_hash(info_hash), client)
    except (ValueError, ClientError):
        return None
