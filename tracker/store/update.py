"""One announce as announce.lua reads it, and the script's answer to it."""

import struct
from typing import Any, NamedTuple

import structlog

from tracker.bittorrent import Endpoint, InfoHash, PeerId

DUE_STEP_SECONDS = 2
EVENT_CODES = {"": b"u", "started": b"s", "completed": b"c", "stopped": b"x", "paused": b"p"}
_PACKED = struct.Struct(">40s40s20scdddHdIBB")

log = structlog.get_logger("tracker.store")


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


class Admitted(NamedTuple):
    """The announce was applied, or answered without being applied (``stranger``)."""

    seeders: int
    leechers: int
    completions: int
    peers: bytes
    peers6: bytes
    peer_ids: bytes
    peer_ids6: bytes
    outcome: str
    """update, join, leave or stranger."""


class Refused(NamedTuple):
    """Nothing was changed. ``reason`` is an operator's own text, or empty."""

    code: str
    reason: str


def due_deadline(now: float, timeout_seconds: float) -> int:
    """The due list a timeout belongs to: its end, rounded up to the list's step so that it is over by then."""
    return -int(-(now + timeout_seconds) // DUE_STEP_SECONDS) * DUE_STEP_SECONDS


def pack(update: PeerUpdate) -> bytes:
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
        update.random,
        update.with_ids,
        len(endpoint),
    )
    return b"%b%b%c%b%c%b" % (head, endpoint, len(digest), digest, len(passkey), passkey)


def parse(reply: list[Any]) -> Admitted | Refused:
    """The script's answer to one announce."""
    if reply[0] == 0:
        return Admitted._make((*reply[1:8], reply[8].decode()))
    code, reason = reply[1].decode(), reply[2].decode("utf-8", "replace")
    if code == "error":  # a key of a type nobody should have given it; nothing was changed
        log.error("announce failed in the store", error=reason)
        reason = ""
    return Refused(code, reason)
