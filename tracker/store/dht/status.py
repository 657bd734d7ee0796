"""What a node of the DHT says about itself every few seconds, for people. It is the hash ``t:dht:<node>``. A site may
write this key too, so a value may be invalid."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracker.store.schema.lenient_numbers import json_object, whole

NEARLY_NONE = 20
"""Fewer than one torrent in so many."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Counted in up to some thousand torrents, evenly spread over the register."""

    registered: int
    looked_at: int  # how many of the registered torrents were looked at
    part: int  # how many of those take part
    unknown: int = 0  # how many of those do not take part only because their privacy is unknown

    @property
    def estimate(self) -> int:
        """How many torrents take part; exact if all were looked at."""
        return round(self.part * self.registered / self.looked_at) if self.looked_at else 0

    @property
    def is_exact(self) -> bool:
        return self.looked_at >= self.registered

    @property
    def text(self) -> str:
        """One sentence without a full stop."""
        if self.is_exact:
            return f"{self.part:,} of {self.registered:,} registered torrents take part"
        sample = f"estimated from {self.looked_at:,}"
        return f"about {self.estimate:,} of {self.registered:,} registered torrents take part ({sample})"

    @property
    def sentence(self) -> str:
        """The text, and the advice if there is one."""
        return f"{self.text}: {self.advice}" if self.advice else self.text

    @property
    def advice(self) -> str:
        """What to set where nearly no torrent takes part; else empty."""
        if not self.unknown or self.part * NEARLY_NONE >= self.looked_at:
            return ""
        return "set TRACKER_DHT__TORRENTS=all to include torrents of unknown privacy"


FAMILIES = (4, 6)
START_SECONDS = 30
"""A node needs so long to find others."""
ANSWER_SECONDS = 60
"""A node without an answer for longer is down. While nothing else is asked, others are pinged every 30 s."""
STOPPED_SECONDS = 30
"""A node whose status is older has stopped."""
_ID = re.compile(r"[0-9a-f]{40}")
_MAX_NAMES = 100
_PARTICIPATION = ("registered", "looked_at", "part", "unknown")
_COUNTS = ("hashes", "peers", "packets_in", "packets_out", "bytes_in", "bytes_out")

State = Literal["starting", "up", "down", "stopped"]
Mode = Literal["public", "all", "any"]
_MODES: dict[str, Mode] = {"all": "all", "any": "any"}


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Times are epoch seconds. Packets, bytes and lookups count since ``started``."""

    name: str
    mode: Mode  # which torrents take part: the setting ``TRACKER_DHT__TORRENTS``
    started: int
    saved: int  # when the node wrote this
    last_answer: int | None = None  # when another node last answered
    ids: Mapping[int, bytes] = field(default_factory=dict)  # by address family: 4 and 6
    externals: Mapping[int, str] = field(default_factory=dict)  # this host's addresses as others see them, by family
    buckets: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Nodes by family and bucket, without empty buckets."""
    hashes: int = 0  # torrents that other nodes announced to this one
    peers: int = 0  # their peers
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # packets by reason
    lookups: Mapping[str, int] = field(default_factory=dict)  # lookups of torrents by outcome: answered, unanswered
    participation: Participation | None = None  # None until it has been counted

    def nodes(self, family: int) -> int:
        """Known nodes of an address family."""
        return sum(self.buckets.get(family, {}).values())

    def state(self, now: float) -> State:
        """``now``: epoch seconds."""
        if now - self.saved > STOPPED_SECONDS:
            return "stopped"
        return state_of(self.started, self.last_answer, self.saved)


def state_of(started: float, last_answer: float | None, now: float) -> Literal["starting", "up", "down"]:
    """The state of a running node. All times are of one clock."""
    if last_answer is not None and now - last_answer <= ANSWER_SECONDS:
        return "up"
    return "starting" if now - started < START_SECONDS else "down"


def fields_of(status: NodeStatus) -> dict[str, str | int | None]:
    """The fields of the hash; ``None`` for one that does not apply."""
    counted = status.participation
    fields: dict[str, str | int | None] = {
        "mode": status.mode,
        "started": status.started,
        "saved": status.saved,
        "last_answer": status.last_answer,
        **{name: getattr(status, name) for name in _COUNTS},
        "dropped": json.dumps(dict(status.dropped), sort_keys=True),
        "lookups": json.dumps(dict(status.lookups), sort_keys=True),
        **{name: None if counted is None else getattr(counted, name) for name in _PARTICIPATION},
    }
    for family in FAMILIES:
        id, buckets = status.ids.get(family), status.buckets.get(family)
        fields |= {
            f"id{family}": None if id is None else id.hex(),
            f"external{family}": status.externals.get(family),
            f"nodes{family}": None if id is None else status.nodes(family),
            f"buckets{family}": None
            if id is None
            else " ".join(f"{bucket}:{nodes}" for bucket, nodes in sorted((buckets or {}).items()) if nodes),
        }
    return fields


def status_of(name: str, fields: Mapping[str, str]) -> NodeStatus:
    """Reads what ``fields_of`` made. Damaged values are left out."""

    def number(field: str) -> int:
        return whole(fields.get(field, "").encode())

    ids = {family: text for family in FAMILIES if _ID.fullmatch(text := fields.get(f"id{family}", ""))}
    return NodeStatus(
        name=name,
        mode=_MODES.get(fields.get("mode", ""), "public"),
        started=number("started"),
        saved=number("saved"),
        last_answer=number("last_answer") or None,
        ids={family: bytes.fromhex(text) for family, text in ids.items()},
        externals={
            family: text for family in FAMILIES if (text := fields.get(f"external{family}", "")) and text.isascii()
        },
        buckets={family: _read_buckets(fields.get(f"buckets{family}", "")) for family in ids},
        **{field: number(field) for field in _COUNTS},
        dropped=_read_counts(fields.get("dropped", "")),
        lookups=_read_counts(fields.get("lookups", "")),
        participation=Participation(*map(number, _PARTICIPATION)) if "registered" in fields else None,
    )


def _read_buckets(text: str) -> dict[int, int]:
    """``0:80 1:79``: bucket and nodes."""
    found = (re.fullmatch(r"([0-9]{1,3}):([0-9]{1,9})", word, re.ASCII) for word in text.split()[:160])
    return {int(match[1]): int(match[2]) for match in found if match is not None}


def _read_counts(text: str) -> dict[str, int]:
    found = json_object(text) or {}
    return {
        name: number for name, number in list(found.items())[:_MAX_NAMES] if type(number) is int and 0 <= number < 2**53
    }
