"""What the register knows of a torrent, read out of the store: figures, peers, history, denial.

A site may write there too, and what it wrote may be anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from tracker.bittorrent import Endpoint, InfoHash, PeerId
from tracker.store.figures import whole

_HEX = re.compile(rb"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Torrent:
    """A registered torrent and its figures."""

    info_hash: InfoHash
    torrent_id: str
    registered: bool
    name: str = ""
    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    announces: int = 0
    enabled: bool = True
    reason: str = ""
    private: bool = False
    denied: str | None = None
    score: float | None = None
    """None when the torrent is not in the ranking by score."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Everything the torrent's hash holds, as text."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An active peer of a torrent."""

    peer_id: PeerId
    endpoints: tuple[Endpoint, ...]
    seeding: bool
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    """What a torrent was like when it was scored."""

    at: int
    """Epoch seconds."""
    seeders: int
    leechers: int
    completions: int
    score: float
    """The score it was given; 0 when it left the ranking."""


@dataclass(frozen=True, slots=True)
class Denial:
    """A torrent that nobody may announce."""

    info_hash: InfoHash
    reason: str
    """What its peers are shown."""
    since: int
    """When it was denied, or found to be, epoch seconds."""


def text_of(row: Any) -> dict[str, str]:
    """A hash as the client gives it, as text."""
    if isinstance(row, list):
        row = dict(zip(row[::2], row[1::2], strict=True))
    if not isinstance(row, dict):  # the server's word that it is no hash
        return {}
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in row.items()}


def info_hash_of(text: bytes | None) -> InfoHash | None:
    """40 hex digits; None for anything else."""
    return InfoHash(bytes.fromhex(text.decode())) if text is not None and _HEX.fullmatch(text) else None


def torrent_of(
    info_hash: InfoHash, fields: dict[str, str], torrent_id: bytes | None, denied: bytes | None
) -> Torrent:
    def number(name: str) -> int:
        return whole(fields.get(name, "").encode())

    return Torrent(
        info_hash=info_hash,
        torrent_id=fields.get("tid") or (torrent_id or b"").decode("utf-8", "replace"),
        registered=torrent_id is not None,
        name=fields.get("name", ""),
        seeders=number("seeders"),
        leechers=number("leechers"),
        completions=number("snatches"),
        announces=number("announces"),
        enabled=fields.get("enabled") != "0",
        reason=fields.get("reason", ""),
        private=fields.get("private") == "1",
        denied=denied.decode("utf-8", "replace") if denied is not None else None,
        fields=fields,
    )


def peer_of(peer_id: PeerId, row: Any) -> Peer:
    if isinstance(row, list):
        row = dict(zip(row[::2], row[1::2], strict=True))
    if not isinstance(row, dict):
        row = {}
    packed = row.get(b"endpoints", b"")
    v4 = packed[:6] if len(packed) in (6, 24) else b""
    v6 = packed[-18:] if len(packed) >= 18 else b""
    endpoints = tuple(Endpoint(e) for e in (v4, v6) if e)
    seeding = row.get(b"left") == b"0" and row.get(b"paused") != b"1"
    hidden = {b"endpoints", b"key"}
    return Peer(peer_id, endpoints, seeding, text_of({k: v for k, v in row.items() if k not in hidden}))


def point_of(entry: bytes) -> Point | None:
    """An entry of a history; None for what is none."""
    try:
        *figures, score = entry.split()
        at, seeders, leechers, completions = map(int, figures)
        given = float(score)
    except ValueError:
        return None
    return Point(at, seeders, leechers, completions, given) if isfinite(given) else None
