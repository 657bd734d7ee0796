"""Replies to peers: any numbers, peers and texts become bencode in order, and decode to the same values."""

from collections.abc import Iterable
from typing import Any

from bencodepy import decode, encode

from tracker.bittorrent import Address, Announce, AnnounceReply, InfoHash, PeerId, ScrapeFile, ScrapeReply
from tracker.refusals import Refusal
from tracker.wire.endpoint import format_address, split_endpoints
from tracker.wire.http_reply import encode_announce, encode_failure, encode_scrape

MAX_LENGTH = 400


def check(data: bytes) -> None:
    numbers = [int.from_bytes(data[at : at + 3], "big") for at in range(0, 15, 3)]
    addresses = (None, Address(data[:4].ljust(4, b"\0")), Address(data[:16].ljust(16, b"\0")))
    mode, rest = data[15] if len(data) > 15 else 0, data[16:]
    whole, whole6 = (rest[: len(rest) // 2 // size * size] for size in (6, 18))
    text = rest.decode("utf-8", "surrogateescape")

    interval, min_interval, seeders, leechers, completions = numbers
    reply = AnnounceReply(
        interval,
        min_interval,
        seeders,
        leechers,
        completions,
        whole,
        whole6 if mode & 4 else b"",
        bytes(len(whole) // 6 * 20),
        bytes(len(whole6) // 18 * 20),
        addresses[mode % 3],
        text if mode & 8 else None,
    )
    _check_announce(reply, compact=bool(mode & 16), no_peer_id=bool(mode & 32))
    files = {InfoHash(bytes((at,)) * 20): ScrapeFile(seeders, leechers, completions, min_interval) for at in rest[:5]}
    assert _decode(encode_scrape(ScrapeReply(files)))[b"files"].keys() == files.keys()
    failure = _decode(encode_failure(Refusal("denied", text), numbers[0], 1))
    assert failure[b"interval"] == numbers[0] and failure[b"retry in"] == b"never"


def _check_announce(reply: AnnounceReply, *, compact: bool, no_peer_id: bool) -> None:
    announce = Announce(InfoHash(bytes(20)), PeerId(bytes(20)), 1, compact=compact, no_peer_id=no_peer_id)
    decoded = _decode(encode_announce(reply, announce))
    keys = (b"interval", b"min interval", b"complete", b"incomplete", b"downloaded")
    assert tuple(decoded[key] for key in keys) == reply[:5]
    assert decoded.get(b"external ip") == reply.external_address
    assert (b"warning message" in decoded) == bool(reply.warning)
    if compact:
        assert decoded[b"peers"] == reply.peers and decoded.get(b"peers6", b"") == reply.peers6
        return
    listed = [(peer[b"ip"].decode(), peer[b"port"]) for peer in decoded[b"peers"]]
    wanted = [*split_endpoints(reply.peers, 6), *split_endpoints(reply.peers6, 18)]
    assert listed == [(format_address(address), port) for address, port in wanted]
    assert all((b"peer id" in peer) != no_peer_id for peer in decoded[b"peers"])


def _decode(reply: bytes) -> dict[bytes, Any]:
    decoded: dict[bytes, Any] = decode(reply)
    assert encode(dict(sorted(decoded.items()))) == reply, "not bencode in order"
    return decoded


def seeds() -> Iterable[bytes]:
    return [
        bytes(16) + b"abcdef" * 8,
        b"\xff" * 64,
        *(bytes((*range(15), mode)) + b"xyz\xe4\xed\xa0\x80" * 12 for mode in range(0, 64, 5)),
    ]
