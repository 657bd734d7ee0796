"""Puts peers into a store through the tracker's own API, without the HTTP side: for swarms too large to announce over sockets."""

import asyncio
import time
from collections.abc import Callable, Sequence

from bench.loader import BenchError
from bench.population import Peer
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.errors import StoreAway
from tracker.loops import running
from tracker.store.connection import Connection, connect
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.swarms import EVENT_CODES, Admitted, PeerUpdate, Refused, SwarmRules, Swarms

_AT_ONCE = 640
_LOOPBACK = bytes([127, 0, 0, 1])


async def preload(url: str, peers: Sequence[Peer], timeout_seconds: float | Callable[[], float]) -> None:
    """All of ``peers`` join, with that timeout or the next one; raises BenchError for the first that may not."""
    timeout = timeout_seconds if callable(timeout_seconds) else lambda: timeout_seconds
    connection, keys = Connection(connect(url, connect_timeout=5), timeout=60), Keys()
    rules = SwarmRules(new_per_address_hour=10**9)
    swarms = Swarms(
        connection, Scripts(connection, keys.prefix), keys, rules, time.time, max_waiting=_AT_ONCE
    )
    try:
        async with running(swarms.run):
            for first in range(0, len(peers), _AT_ONCE):
                some = [update_of(peer, timeout()) for peer in peers[first : first + _AT_ONCE]]
                await _join(swarms, some)
    finally:
        await connection.close()


async def _join(swarms: Swarms, updates: Sequence[PeerUpdate]) -> None:
    answers: list[Admitted | Refused | StoreAway] = []
    answered = asyncio.Event()

    def settle(_: object, answer: Admitted | Refused | StoreAway) -> None:
        answers.append(answer)
        if len(answers) == len(updates):
            answered.set()

    for update in updates:
        swarms.submit(update, settle, None)
    await answered.wait()
    for answer in answers:
        if not isinstance(answer, Admitted):
            raise BenchError(f"a peer of the preload was refused: {answer}")


def update_of(peer: Peer, timeout_seconds: float) -> PeerUpdate:
    """The peer's first announce, which wants nobody's address."""
    return PeerUpdate(
        info_hash=InfoHash(peer.info_hash),
        peer_id=PeerId(peer.peer_id),
        event=EVENT_CODES["started"],
        uploaded=Digits(b"0"),
        downloaded=Digits(b"0"),
        bytes_left=Digits(b"%d" % peer.bytes_left),
        endpoint=Endpoint(_LOOPBACK + peer.port.to_bytes(2, "big")),
        peers_wanted=0,
        key_digest=peer.key.encode(),
        passkey="",
        timeout_seconds=timeout_seconds,
        random=peer.port,
        with_ids=False,
    )
