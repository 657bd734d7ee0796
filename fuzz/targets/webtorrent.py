"""Messages of WebTorrent clients: parsed or BadMessage, and what is passed on can be read again."""

import json
from collections.abc import Iterable

import orjson

from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Scrape
from tracker.wire.webtorrent import (
    MAX_OFFERS,
    MAX_SDP_LENGTH,
    Answer,
    BadMessage,
    Message,
    encode_failure,
    encode_offer,
    parse,
)

MAX_LENGTH = 2000
_MAX_HASHES = 5
_HASH, _PEER = "\xff\x01" + "h" * 18, "-WW0300-" + "p" * 12


def check(data: bytes) -> None:
    message: Message
    try:
        message = parse(data, _MAX_HASHES)
    except BadMessage as error:
        failure = orjson.loads(encode_failure(error.info_hash, error.refusal, error.action))
        assert failure["action"] in ("announce", "scrape") and len(failure["info_hash"]) == HASH_LENGTH
        return
    if isinstance(message, Scrape):
        assert len(message.info_hashes) <= _MAX_HASHES
    elif isinstance(message, Answer):
        assert len(message.accepted.sdp) <= MAX_SDP_LENGTH
        passed_on = orjson.loads(encode_offer(message.info_hash, message.peer_id, message.accepted, "answer"))
        assert passed_on["answer"] == {"type": "answer", "sdp": message.accepted.sdp}
    else:
        announce, offers = message
        assert len(announce.info_hash) == len(announce.peer_id) == HASH_LENGTH and len(offers) <= MAX_OFFERS
        assert all(0 <= int(n or 0) <= MAX_COUNT for n in announce[3:6])
        for offer in offers:
            passed_on = orjson.loads(encode_offer(announce.info_hash, announce.peer_id, offer))
            assert passed_on["offer_id"].encode("latin-1") == offer.offer_id
            assert passed_on["offer"] == {"type": "offer", "sdp": offer.sdp}


def seeds() -> Iterable[bytes]:
    ids = {"action": "announce", "info_hash": _HASH, "peer_id": _PEER}
    offer = {"offer": {"type": "offer", "sdp": "v=0\r\n"}, "offer_id": "o" * 20}
    answer = {"to_peer_id": _PEER, "offer_id": "o" * 20, "answer": {"type": "answer", "sdp": "v=0\r\n"}}
    messages: list[object] = [
        {**ids, "numwant": 5, "uploaded": 0, "downloaded": 1.0, "left": None, "offers": [offer, None, 3]},
        {**ids, "event": "stopped", "key": "0123abcd", "left": "7", "uploaded": 2**64, "offers": None},
        {**ids, "event": "paused", "left": -1},
        {**ids, **answer},
        {**ids, "answer": {"type": "offer"}},
        {"action": "scrape", "info_hash": _HASH},
        {"action": "scrape", "info_hash": [_HASH, _PEER]},
        {"action": "scrape"},
        {**ids, "info_hash": "\u0100" * 20},
        {**ids, "peer_id": ""},
        [],
        {},
    ]
    return [json.dumps(message, ensure_ascii=False).encode() for message in messages] + [b'{"action": "\\ud800"}']
