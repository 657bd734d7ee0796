"""Parses stored torrents, peers, history points and denials. A site may write these keys too, so a value may be
invalid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple

from tracker.bittorrent import Endpoint, InfoHash, PeerId, info_hash_of
from tracker.errors import ClientError
from tracker.names import clean_text
from tracker.store.schema.lenient_numbers import hash_of, text_of, whole
from tracker.store.schema.multipliers import NO_MULTIPLIER, Rules, is_neutral, multipliers_of
from tracker.store.schema.record import Field, settable, shown
from tracker.wire.endpoint import endpoints_of

MAX_SIZE = 2**53 - 1
"""Bytes: the largest number that is exact in JSON and in the store's scripts."""
STORED_NAMES = {"upload_multiplier": "multi_up", "download_multiplier": "multi_dn"}
"""Names of stored fields that differ from those of the API, the command line and files."""
PENDING: Literal["pending"] = "pending"
Enabled = bool | Literal["pending"]
"""Whether announces are accepted; ``"pending"``: not yet, the torrent waits for approval."""
MAX_LABELS = 20
LABEL = "[-_.a-z0-9]{1,32}"
"""A regular expression for one label."""
_LABEL = re.compile(LABEL)
_MAX_LABELS_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Torrent:
    """A torrent with its statistics. It is registered, denied, or still has peers."""

    info_hash: InfoHash
    torrent_id: Annotated[str, Field("Torrent ID: its number in Redis.")]
    registered: bool
    name: Annotated[str, Field("Display name.", "fields", max_length=1000)] = ""
    seeders: Annotated[int, Field("Peers that seed.", column=8)] = 0
    leechers: Annotated[int, Field("Peers that download.", column=8)] = 0
    completions: int = 0
    announces: Annotated[int, Field("Announces so far.")] = 0
    enabled: Annotated[
        bool,
        Field(
            "false: announces are refused; statistics stay. `pending`: the same, but clients ask again after 30 "
            "seconds, so they work soon after the approval (true).",
            "fields",
            attribute="switch",
        ),
    ] = True
    """False also while it is pending."""
    pending: bool = False
    reason: Annotated[
        str, Field("Reason shown to clients if disabled, pending or denied.", "fields", max_length=1000)
    ] = ""
    private: Annotated[bool, Field("Mark as private or public.", "fields", off="public")] = False
    size: Annotated[int | None, Field("Bytes of all files without padding.", "fields")] = None
    labels: Annotated[tuple[str, ...], Field("They replace earlier ones.", "fields", max_length=MAX_LABELS)] = ()
    added: Annotated[int | None, Field("When it was registered; null if unknown.", unit="epoch s")] = None
    """A torrent that a site wrote: when it was first announced."""
    empty_since: Annotated[
        int | None, Field("When its last peer left; null while it has peers, and if it never had one.", unit="epoch s")
    ] = None
    upload_multiplier: Annotated[
        Rules, Field("Factor for users' upload, 0 to 1000; 1: none. Text has several rules.", "fields")
    ] = NO_MULTIPLIER
    download_multiplier: Annotated[
        Rules, Field("Factor for users' download; 0: freeleech, 1: none. Text has several rules.", "fields")
    ] = NO_MULTIPLIER
    hybrid_of: Annotated[
        str, Field("Of the v2 half of a hybrid torrent: info hash of the v1 half, which counts for users.", "fields")
    ] = ""
    hybrid: Annotated[str, Field("Of the v1 half of a hybrid torrent: info hash of the v2 half.")] = ""
    denied: str | None = None
    dht_seeds: Annotated[int | None, Field("Seeders that the last lookup in the DHT found; null if none has.")] = None
    dht_peers: Annotated[int | None, Field("The same for all peers.")] = None
    dht_at: Annotated[int | None, Field("Time of that lookup.", unit="epoch s")] = None
    score: Annotated[float | None, Field("null if not ranked.")] = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """All fields of the torrent's hash, as text."""

    def is_neutral(self, now: float) -> bool:
        """Whether nothing counts on the torrent at ``now`` (epoch s)."""
        return is_neutral(self.upload_multiplier, self.download_multiplier, now)

    @property
    def switch(self) -> Enabled:
        """``enabled`` as programs set it."""
        return "pending" if self.pending else self.enabled

    def settable(self) -> dict[str, Any]:
        """TORRENT_FIELDS with their values, and the ends of the multipliers as fields of their own. Labels as stored:
        separated by spaces."""
        return {**shown(self, TORRENT_FIELDS), "labels": " ".join(self.labels)}


TORRENT_FIELDS = tuple(settable(Torrent))
"""Fields of a torrent that programs set. The API, the command line and files have each of them."""


class StoredTorrent(NamedTuple):
    """A torrent as it is stored. Two are compared in a tenth of the time that reading them takes."""

    info_hash: InfoHash
    torrent_id: bytes | None
    """None if it is not registered."""
    denied: bytes | None
    """The reason; None if it is not denied."""
    fields: list[bytes]
    """Fields of its hash, each with its value behind it."""
    score: bytes | None = None

    def read(self) -> Torrent:
        fields = text_of(hash_of(self.fields))

        def number(name: str) -> int:
            return whole(fields.get(name, "").encode())

        def half(name: str) -> str:
            found = info_hash_of(fields.get(name, "").encode())
            return "" if found is None else found.hex()

        looked_up = number("dht_at") or None
        is_empty = number("seeders") + number("leechers") == 0
        return Torrent(
            info_hash=self.info_hash,
            torrent_id=fields.get("tid") or (self.torrent_id or b"").decode("utf-8", "replace"),
            registered=self.torrent_id is not None,
            name=clean_text(fields.get("name", "")),
            seeders=number("seeders"),
            leechers=number("leechers"),
            completions=number("snatches"),
            announces=number("announces"),
            enabled=fields.get("enabled") not in ("0", "pending"),
            pending=fields.get("enabled") == "pending",
            reason=clean_text(fields.get("reason", "")),
            private=fields.get("private") == "1",
            size=size_of(fields.get("size", "")),
            labels=labels_of(fields.get("labels", "")),
            added=number("added") or None,
            empty_since=number("empty_since") or None if is_empty else None,
            upload_multiplier=multipliers_of(fields.get("multi_up", "")),
            download_multiplier=multipliers_of(fields.get("multi_dn", "")),
            hybrid_of=half("hybrid_of"),
            hybrid=half("hybrid"),
            denied=clean_text(self.denied.decode("utf-8", "replace")) if self.denied is not None else None,
            dht_seeds=number("dht_seeds") if looked_up else None,
            dht_peers=number("dht_peers") if looked_up else None,
            dht_at=looked_up,
            score=None if self.score is None else float(self.score),
            fields=fields,
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """An active peer of a torrent."""

    peer_id: PeerId
    endpoints: tuple[Endpoint, ...]
    seeding: bool
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    """A torrent's peers, completions and score at one scoring."""

    at: int
    """Epoch seconds."""
    seeders: int
    leechers: int
    completions: int
    score: float
    """The new score; 0 if the torrent left the ranking."""


@dataclass(frozen=True, slots=True)
class Denial:
    """A torrent on the deny list. Its announces are refused."""

    info_hash: InfoHash
    reason: str
    """Shown to its peers."""
    since: int
    """When it was denied, or when the tracker found a denial that a site wrote (epoch s)."""


def size_of(text: str) -> int | None:
    """A size from 0 to MAX_SIZE in decimal digits; None for anything else."""
    valid = text.isascii() and text.isdigit() and len(text) <= 16
    return int(text) if valid and int(text) <= MAX_SIZE else None


def labels_of(text: str) -> tuple[str, ...]:
    """The first MAX_LABELS valid labels in ``text``, which spaces or commas separate, in lower case."""
    words = text[:_MAX_LABELS_LENGTH].lower().replace(",", " ").split()
    return tuple(dict.fromkeys(word for word in words if _LABEL.fullmatch(word)))[:MAX_LABELS]


def checked_labels(text: str) -> str:
    """The labels as stored: separated by a space. Raises ClientError for an invalid label, and for too many."""
    words = dict.fromkeys(text.replace(",", " ").split())
    if len(words) > MAX_LABELS or not all(_LABEL.fullmatch(word) for word in words):
        raise ClientError(
            f"at most {MAX_LABELS} labels, each 1 to 32 lowercase letters, digits, hyphens, dots or underscores"
        )
    return " ".join(words)


def peer_of(peer_id: PeerId, row: Mapping[bytes, bytes]) -> Peer:
    endpoints = endpoints_of(row.get(b"endpoints", b""))
    seeding = row.get(b"left") == b"0" and row.get(b"paused") != b"1"
    hidden = {b"endpoints", b"key"}
    return Peer(peer_id, endpoints, seeding, text_of({k: v for k, v in row.items() if k not in hidden}))


def point_of(entry: bytes) -> Point | None:
    """Parses a history entry. None if it is invalid."""
    try:
        *counts, score = entry.split()
        at, seeders, leechers, completions = map(int, counts)
        new_score = float(score)
    except ValueError:
        return None
    return Point(at, seeders, leechers, completions, new_score) if isfinite(new_score) else None
