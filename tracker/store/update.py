"""One announce as the store takes it, and as announce.lua reads it."""

import struct
from typing import NamedTuple

from tracker.bittorrent import Endpoint, InfoHash, PeerId

DUE_STEP_SECONDS = 2
EVENT_CODES = {"": b"u", "started": b"s", "completed": b"c", "stopped": b"x", "paused": b"p"}
_PACKED = struct.Struct(">40s40s20scdddHd10sIBB")


class PeerUpdate(NamedTuple):
    """One announce as the store takes it."""

    info_hash: InfoHash
    peer_id: PeerId
    event: bytes
    """One of EVENT_CODES' values."""
    uploaded: int
    downloaded: int
    bytes_left: int | None
    endpoint: Endpoint
    peers_wanted: int
    key_digest: bytes
    passkey: str
    timeout_seconds: float
    random: int
    with_ids: bool


def due_deadline(now: float, timeout_seconds: float) -> int:
    """The due list a timeout belongs to: its end, rounded up to the list's step so that it is over by then."""
    return -int(-(now + timeout_seconds) // DUE_STEP_SECONDS) * DUE_STEP_SECONDS


def pack(update: PeerUpdate, now: int) -> bytes:
    """One announce as announce.lua reads it."""
    peer_id = update.peer_id
    left = update.bytes_left
    endpoint = update.endpoint
    digest = update.key_digest
    passkey = update.passkey.encode()[:255]
    head = _PACKED.pack(
        update.info_hash.hex().encode(),
        peer_id.hex().encode(),
        peer_id,
        update.event,
        update.uploaded,
        update.downloaded,
        -1 if left is None else left,
        update.peers_wanted,
        int(update.timeout_seconds * 1000),
        b"%010d" % due_deadline(now + 1, update.timeout_seconds),
        update.random,
        update.with_ids,
        len(endpoint),
    )
    return b"%b%b%c%b%c%b" % (head, endpoint, len(digest), digest, len(passkey), passkey)
