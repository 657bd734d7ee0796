"""Adds peers to a store through the tracker's own API, without HTTP: for swarms too large to announce over sockets."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from loadtest.bench.loader import BenchError
from loadtest.bench.population import Peer
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shards
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.codec import EVENT_CODES, PeerUpdate, Refused
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules, SwarmRules
from tracker.store.swarms.swarms import AllSwarms, Outcome
from tracker.store.users.copies import UserCopies
from tracker.system.event_loop import running

_AT_ONCE = 640
_LOOPBACK = bytes([127, 0, 0, 1])


async def preload(url: str, peers: Sequence[Peer], timeout_seconds: float | Callable[[], float]) -> None:
    """Lets all ``peers`` join, with a fixed timeout or the next one. Raises BenchError for the first refusal."""
    timeout = timeout_seconds if callable(timeout_seconds) else lambda: timeout_seconds
    connection = Connection(connect(url, connect_timeout=5, timeout=60))
    rules = LiveRules(SwarmRules(new_per_address_hour=10**9, new_per_network_hour=10**9))
    shards = Shards.under(connection, Keys().prefix, 1)
    reapings = {shard: Reaping(shard, shards, rules, time.time) for shard in shards}
    swarms = AllSwarms(
        shards, reapings, rules, AnnounceCounts(shards), time.time, UserCopies(shards, reapings).bring, _AT_ONCE
    )
    try:
        async with running(swarms.run):
            for first in range(0, len(peers), _AT_ONCE):
                some = [update_of(peer, timeout()) for peer in peers[first : first + _AT_ONCE]]
                await _join(swarms, some)
    finally:
        await connection.close()


async def _join(swarms: AllSwarms, updates: Sequence[PeerUpdate]) -> None:
    answers: list[Outcome] = []
    answered = asyncio.Event()

    def settle(settled: Iterable[tuple[None, Outcome]], batch: object) -> None:
        del batch
        answers.extend(answer for _, answer in settled)
        if len(answers) == len(updates):
            answered.set()

    for update in updates:
        swarms.submits[update.info_hash[0]](update, settle, None)
    await answered.wait()
    for answer in answers:
        if isinstance(answer, Refused | StoreUnavailable):
            raise BenchError(f"a peer of the preload was refused: {answer}")


def update_of(peer: Peer, timeout_seconds: float) -> PeerUpdate:
    """The peer's first announce, which requests no peers."""
    return PeerUpdate(
        info_hash=InfoHash(peer.info_hash),
        peer_id=PeerId(peer.peer_id),
        event=EVENT_CODES["started"],
        uploaded=Digits(b"0"),
        downloaded=Digits(b"0"),
        bytes_left=Digits(b"%d" % peer.bytes_left),
        endpoint=Endpoint(_LOOPBACK + peer.port.to_bytes(2, "big")),
        peers_wanted=0,
        key=peer.key.encode(),
        passkey="",
        timeout_seconds=timeout_seconds,
        random=peer.port,
        form=0,
        unbounded=False,
    )
