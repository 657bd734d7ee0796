"""Instructions of the store for announces: `python -m loadtest.bench.script_cost`.

The store runs under valgrind's callgrind, so the counts do not depend on the load of the machine. First announces of a
public tracker, each peer at an address of its own: by kind, and by how many share a call; private_rules.py has those of
users. Then the commands of a
regular announce alone, as a script calls them.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loadtest.bench.counting_store import START_SECONDS, begin_count, counting_store, counts
from loadtest.bench.loader import BenchError
from loadtest.bench.population import Peer, make_peers
from loadtest.bench.sections import Section, as_markdown
from loadtest.bench.targets import find
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.codec import Admitted, PeerUpdate
from tracker.store.swarms.rules import SwarmRules
from tracker.store.swarms.swarms import MAX_BATCH

PEERS, TORRENTS = 3000, 200
CALLS = 10
"""Measured calls of each kind."""
MIXES = (
    ("regular, alone", 1, 0),
    ("regular, 24 in a call", 24, 0),
    ("regular, 64 in a call", 64, 0),
    ("22 regular ones, a join and a stop in a call", 24, 1),
    ("58 regular ones, 3 joins and 3 stops in a call", 64, 3),
)
"""(name, announces in a call, joins and also stops among them)"""
REPEATS = 1000
_TORRENT = "'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'arrays'"
_PEER = "'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'marks'"
COMMANDS = (
    ("nothing", ""),
    ("PING: the least that a command takes", "call('PING')"),
    ("HMGET of one field", "call('HMGET', KEYS[1], 'tid')"),
    ("HMGET of the torrent: six fields", f"call('HMGET', KEYS[1], {_TORRENT})"),
    ("HMGET of the peer: seven fields", f"call('HMGET', KEYS[2], {_PEER})"),
    ("GETRANGE of 50 endpoints", "call('GETRANGE', KEYS[3], 0, 299)"),
    ("PEXPIRE of its timeout", "call('PEXPIRE', KEYS[4], 2700000)"),
    ("HSET of two fields of the peer", "call('HSET', KEYS[2], 'last_announce', i, 'total_time', i)"),
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not find("valgrind"):
        sys.exit("valgrind is missing: apt install valgrind")
    print(as_markdown(measure()))


def measure() -> list[Section]:
    with tempfile.TemporaryDirectory(prefix="script-") as name:
        directory = Path(name)
        with counting_store(directory):
            asyncio.run(_run(f"unix://{directory}/s"))
        totals = list(counts(directory))[1::2]
    announces, commands = Section("Announces"), Section("Commands of a script")
    kinds = [*MIXES, ("joins, 64 in a call", MAX_BATCH, 0), ("stops, 64 in a call", MAX_BATCH, 0)]
    for (what, size, _), total in zip(kinds, totals, strict=False):
        announces.find(what, total / CALLS / size / 1000, "thousand instructions each")
    nothing, *others = totals[len(kinds) :]
    for (what, _), total in zip(COMMANDS[1:], others, strict=True):
        commands.find(what, (total - nothing) / REPEATS / 1000, "thousand instructions")
    return [announces, commands]


async def _run(url: str) -> None:
    connection = Connection(connect(url, connect_timeout=START_SECONDS, timeout=START_SECONDS))
    store = Store(connection, "t:", StoreOptions(rules=SwarmRules()))
    try:
        async with asyncio.TaskGroup() as tasks:
            batches = tasks.create_task(store.swarms.run())
            swarms = _Swarms(store, connection)
            await swarms.fill()
            for _, size, others in MIXES:
                await swarms.measure(size - 2 * others, others, others)
            await swarms.measure(0, MAX_BATCH, 0)
            await swarms.measure(0, 0, MAX_BATCH)
            batches.cancel()
        await _measure_commands(connection, await swarms.keys())
    finally:
        await connection.close()


async def _measure_commands(connection: Connection, keys: Sequence[str]) -> None:
    for _, command in COMMANDS:
        script = f"local call = redis.call for i = 1, {REPEATS} do {command} end"
        for _ in range(2):  # the first run compiles it
            await connection.command("EVAL", script, len(keys), *keys)
            await connection.command("ECHO", "")


class _Swarms:
    """Swarms in which half of the peers are present; each has a number, which makes its address."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        self._random = random.Random(1)
        peers = list(enumerate(make_peers(2 * PEERS, TORRENTS)))
        self._present, self._absent = peers[:PEERS], peers[PEERS:]

    async def fill(self) -> None:
        for first in range(0, PEERS, MAX_BATCH):
            await self._announce([_update(*peer, "s") for peer in self._present[first : first + MAX_BATCH]])

    async def measure(self, regular: int, joins: int, stops: int) -> None:
        await begin_count(self._connection)
        for _ in range(CALLS):
            self._random.shuffle(self._present)
            leaving = [self._present.pop() for _ in range(stops)]
            coming = [self._absent.pop() for _ in range(joins)]
            await self._announce(
                [
                    *(_update(*peer, "u") for peer in self._present[:regular]),
                    *(_update(*peer, "s") for peer in coming),
                    *(_update(*peer, "x") for peer in leaving),
                ]
            )
            self._present += coming
            self._absent += leaving
        await self._connection.command("ECHO", "")

    async def keys(self) -> list[str]:
        """A torrent, a peer of it, an array of its peers, and the peer's timeout."""
        keys, peer = self._store.keys, self._present[0][1]
        torrent = keys.torrent(InfoHash(peer.info_hash))
        torrent_id = (await self._connection.command("HGET", torrent, "tid")).decode()
        array = f"{keys.prefix}swarm:{peer.info_hash.hex()}:{'l' if peer.bytes_left else 's'}4"
        found = keys.peer(torrent_id, PeerId(peer.peer_id))
        return [torrent, found, array, found.replace("p:", "ptimeout:", 1)]

    async def _announce(self, updates: Sequence[PeerUpdate]) -> None:
        outcomes = await asyncio.gather(*map(self._store.swarms.announce, updates))
        refused = [outcome for outcome in outcomes if not isinstance(outcome, Admitted)]
        if refused:
            raise BenchError(f"an announce was refused: {refused[0]}")


def _update(number: int, peer: Peer, event: str) -> PeerUpdate:
    left = Digits(b"%d" % peer.bytes_left)
    return PeerUpdate(
        info_hash=InfoHash(peer.info_hash),
        peer_id=PeerId(peer.peer_id),
        event=event.encode(),
        uploaded=Digits(b"0"),
        downloaded=Digits(b"0"),
        bytes_left=left,
        endpoint=Endpoint((0x0B000000 + number).to_bytes(4, "big") + peer.port.to_bytes(2, "big")),
        peers_wanted=0 if event == "x" else 50,
        key=b"12345678",
        passkey="",
        timeout_seconds=2700,
        random=number,
        form=0,
        unbounded=False,
    )


if __name__ == "__main__":
    main()
