"""Messages of WebTorrent trackers: JSON objects over a WebSocket. Info hashes, peer ids and offer ids are strings of 20
characters from U+0000 to U+00FF, one for each byte. Missing, ``null`` and empty values mean the same. Peers that share
a page announce many torrents over one connection, so each message names its torrent, also a failure."""

from typing import Any, NamedTuple

import orjson

from tracker.bittorrent import HASH_LENGTH, Announce, Event, InfoHash, PeerId, Reply, Scrape, ScrapeReply
from tracker.refusals import Refusal
from tracker.wire.announce_path import MAX_BYTES, MAX_PEERS_WANTED, byte_count, bytes_left

MAX_OFFERS = 20
"""Offers of an announce that are read; further ones are ignored."""
MAX_SDP_LENGTH = 16_384
"""Characters of a session description."""
MAX_KEY_LENGTH = 64
NO_HASH = InfoHash(bytes(HASH_LENGTH))
_EVENTS = {event.value: event for event in Event}
_UPDATE = Event.UPDATE


class Offer(NamedTuple):
    """``sdp`` describes the session that a peer offers, or, in an answer, the one that it accepts."""

    offer_id: bytes
    sdp: str


class SocketAnnounce(NamedTuple):
    announce: Announce
    """Its port is 0: other peers cannot connect to a WebSocket."""
    offers: tuple[Offer, ...]


class Answer(NamedTuple):
    """A peer accepts the offer of another one."""

    info_hash: InfoHash
    peer_id: PeerId
    to_peer_id: PeerId
    accepted: Offer


Message = SocketAnnounce | Answer | Scrape


class BadMessage(Exception):
    """A message that is refused before a decision; ``action`` and ``info_hash`` are those of the failure to send."""

    def __init__(self, reason: str, action: str = "announce", info_hash: InfoHash = NO_HASH) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason)
        self.action = action
        self.info_hash = info_hash


def parse(data: str | bytes, max_scrape: int) -> Message:
    """One message. Raises BadMessage. Offers that are malformed are left out, as the announce is of use without them.
    Only the type and the text of a session description are read."""
    try:
        message = orjson.loads(data)
    except ValueError:  # a lone surrogate is one too
        message = None
    if not isinstance(message, dict):
        raise BadMessage("a message must be a JSON object")
    action = message.get("action")
    if action == "scrape":
        return _scrape(message.get("info_hash"), max_scrape)
    if action != "announce":
        raise BadMessage("the action of a message must be announce or scrape")
    info_hash, peer_id = _binary(message.get("info_hash")), _binary(message.get("peer_id"))
    if info_hash is None:
        raise BadMessage("info_hash must be exactly 20 bytes")
    if peer_id is None:
        raise BadMessage("peer_id must be exactly 20 bytes", "announce", InfoHash(info_hash))
    if message.get("answer"):
        accepted, receiver = _session(message, "answer"), _binary(message.get("to_peer_id"))
        if accepted is None or receiver is None:
            text = "an answer needs to_peer_id, offer_id and a session description"
            raise BadMessage(text, "announce", InfoHash(info_hash))
        return Answer(InfoHash(info_hash), PeerId(peer_id), PeerId(receiver), accepted)
    return _announce(message, InfoHash(info_hash), PeerId(peer_id))


def _binary(value: Any) -> bytes | None:
    """The bytes of an id; None for anything else."""
    if not isinstance(value, str) or len(value) != HASH_LENGTH:
        return None
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return None


def _announce(message: dict[str, Any], info_hash: InfoHash, peer_id: PeerId) -> SocketAnnounce:
    event = message.get("event")
    event = _EVENTS.get(event, _UPDATE) if isinstance(event, str) else _UPDATE
    key = message.get("key")
    left = _number(message.get("left"), "left", info_hash)
    wanted = message.get("numwant")
    offers = message.get("offers") or ()
    if not isinstance(offers, list | tuple):
        raise BadMessage("offers must be a list", "announce", info_hash)
    sessions = (_session(each, "offer") for each in offers[:MAX_OFFERS])
    read = () if event in (Event.STOPPED, Event.COMPLETED) else tuple(filter(None, sessions))
    if isinstance(wanted, int) and 0 <= wanted <= MAX_PEERS_WANTED:
        read = read[:wanted]
    announce = Announce(
        info_hash,
        peer_id,
        port=0,
        uploaded=byte_count(_number(message.get("uploaded"), "uploaded", info_hash) or 0),
        downloaded=byte_count(_number(message.get("downloaded"), "downloaded", info_hash) or 0),
        bytes_left=None if left is None else bytes_left(left),
        key=key.encode("utf-8", "replace")[:MAX_KEY_LENGTH] if isinstance(key, str) else b"",
        event=event,
        peers_wanted=len(read),
    )
    return SocketAnnounce(announce, read)


def _number(value: Any, name: str, info_hash: InfoHash) -> int | None:
    """A count of bytes, also one that a script wrote as text or with a fraction; None for none."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(MAX_BYTES)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_BYTES:
        raise BadMessage(f"{name} must be a number from 0 to 2^64", "announce", info_hash)
    return int(value)


def _session(entry: Any, kind: str) -> Offer | None:
    """The session that an offer or an answer describes; None where it is malformed."""
    if not isinstance(entry, dict) or not isinstance(description := entry.get(kind), dict):
        return None
    raw, sdp = _binary(entry.get("offer_id")), description.get("sdp")
    if raw is None or description.get("type") != kind or not isinstance(sdp, str):
        return None
    return Offer(raw, sdp) if 0 < len(sdp) <= MAX_SDP_LENGTH else None


def _scrape(wanted: Any, max_scrape: int) -> Scrape:
    """An empty list asks for no torrent, and is refused: it must not become a scrape of all."""
    if wanted is None or wanted == "":
        return Scrape()
    hashes = [_binary(each) for each in (wanted if isinstance(wanted, list) else [wanted])[: max_scrape + 1]]
    if len(hashes) > max_scrape:
        raise BadMessage("GET string too long: scrape fewer torrents at once", "scrape")
    if not hashes or None in hashes:
        raise BadMessage("info_hash must be exactly 20 bytes", "scrape")
    return Scrape(tuple(dict.fromkeys(InfoHash(each) for each in hashes if each is not None)))


def encode_reply(info_hash: InfoHash, reply: Reply) -> bytes:
    interval, _, seeders, leechers, completions, *_, warning = reply
    message: dict[str, Any] = {
        "action": "announce",
        "info_hash": info_hash.decode("latin-1"),
        "interval": interval,
        "complete": seeders,
        "incomplete": leechers,
        "downloaded": completions,
    }
    if warning:
        message["warning message"] = warning
    return orjson.dumps(message)


def encode_failure(info_hash: InfoHash, error: Refusal, action: str = "announce") -> bytes:
    return orjson.dumps({"action": action, "info_hash": info_hash.decode("latin-1"), "failure reason": str(error)})


def encode_scrape(reply: ScrapeReply) -> bytes:
    files = {
        info_hash.decode("latin-1"): {
            "complete": file.seeders,
            "incomplete": file.leechers,
            "downloaded": file.completions,
        }
        for info_hash, file in reply.files.items()
    }
    interval = reply.min_request_interval_seconds
    return orjson.dumps({"action": "scrape", "files": files, "flags": {"min_request_interval": interval}})


def encode_offer(info_hash: InfoHash, peer_id: PeerId, session: Offer, kind: str = "offer") -> bytes:
    """An offer or (``kind``) an answer, passed on to the other peer; ``peer_id`` is the sender's."""
    return orjson.dumps(
        {
            "action": "announce",
            "info_hash": info_hash.decode("latin-1"),
            "peer_id": peer_id.decode("latin-1"),
            "offer_id": session.offer_id.decode("latin-1"),
            kind: {"type": kind, "sdp": session.sdp},
        }
    )
