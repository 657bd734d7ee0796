"""One announce as announce.lua reads it, and the script's answer to it."""

import struct
from binascii import hexlify
from typing import Any, NamedTuple

import structlog

from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId

DUE_STEP_SECONDS = 2
EVENT_CODES = {"": b"u", "started": b"s", "completed": b"c", "stopped": b"x", "paused": b"p"}
_OUTCOMES = {b"u": "update", b"e": "early", b"j": "join", b"l": "leave", b"s": "stranger"}
_LENGTHS = struct.Struct("<HHH")
_HEAD = struct.Struct("<80scBHII")

log = structlog.get_logger("tracker.store")


class PeerUpdate(NamedTuple):
    """One announce as the store takes it."""

    info_hash: InfoHash
    peer_id: PeerId
    event: bytes
    """One of EVENT_CODES' values."""
    uploaded: Digits
    downloaded: Digits
    bytes_left: Digits | None
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
    """update, early (an update sooner than the rules allow for), join, leave or stranger."""


class Refused(NamedTuple):
    """Nothing was changed. ``reason`` is an operator's own text, or empty."""

    code: str
    reason: str


class Moved(NamedTuple):
    """Bytes that the peers of a batch say they have moved since they last announced, by the family they announced over."""

    up_v4: int
    down_v4: int
    up_v6: int
    down_v6: int


_NOTHING = Moved(0, 0, 0, 0)


def due_deadline(now: float, timeout_seconds: float) -> int:
    """The due list a timeout belongs to: its end, rounded up to the list's step so that it is over by then."""
    return -int(-(now + timeout_seconds) // DUE_STEP_SECONDS) * DUE_STEP_SECONDS


def pack_rules(*rules: float) -> bytes:
    """What holds for all announces, as announce.lua reads it."""
    return struct.pack("<11d", *rules)


def pack(update: PeerUpdate) -> bytes:
    """One announce as announce.lua reads it."""
    (
        info_hash,
        peer_id,
        event,
        uploaded,
        downloaded,
        bytes_left,
        endpoint,
        peers_wanted,
        digest,
        passkey,
        timeout_seconds,
        random,
        with_ids,
    ) = update
    secret = passkey.encode()[:255] if passkey else b""
    return b"%b%b\0%b\0%b\0%c%b%b%c%b%c%b" % (
        _HEAD.pack(
            hexlify(info_hash + peer_id), event, with_ids, peers_wanted, int(timeout_seconds * 1000), random
        ),
        uploaded,
        downloaded,
        bytes_left or b"",
        len(endpoint),
        endpoint,
        peer_id,
        len(digest),
        digest,
        len(secret),
        secret,
    )


def parse(reply: Any) -> Admitted | Refused:
    """The script's answer to one announce."""
    if type(reply) is not bytes:
        return _refused(*reply[1:])
    letter, seeders, leechers, completions, peers = reply.split(b" ", 4)
    peers6 = ids = ids6 = b""
    outcome = _OUTCOMES.get(letter)
    if outcome is None:
        outcome = _OUTCOMES[letter.lower()]
        peers, peers6, ids, ids6 = _split(peers)
    # Not by Admitted(), which would be half of the price of all this.
    return tuple.__new__(
        Admitted, (int(seeders), int(leechers), int(completions), peers, peers6, ids, ids6, outcome)
    )


def _split(parts: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """peers, peers6, ids, ids6 out of what follows the lengths of the first three."""
    n4, n6, ids = _LENGTHS.unpack_from(parts)
    first = _LENGTHS.size
    second, third = first + n4, first + n4 + n6
    return parts[first:second], parts[second:third], parts[third : third + ids], parts[third + ids :]


def _refused(code: bytes, reason: bytes) -> Refused:
    text = reason.decode("utf-8", "replace")
    if code == b"error":  # a key of a type nobody should have given it; nothing was changed
        log.error("announce failed in the store", error=text)
        text = ""
    return Refused(code.decode(), text)


def parse_moved(figures: bytes) -> Moved:
    """The script's answer for the whole batch."""
    return Moved(*map(int, figures.split())) if figures else _NOTHING
