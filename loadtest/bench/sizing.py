"""Nodes of a cluster for a number of peers: `python -m loadtest.bench.sizing`; ``--write`` puts the table into
docs/sizing.md.

A new store is filled with peers of a public and of a private tracker, and with users, and its memory is read. The CPU
time of an announce is that of docs/performance.md, rounded up.
"""

import argparse
import asyncio
import math
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from loadtest.bench import memory, page
from loadtest.bench.private_rules import WITHOUT_RULES
from loadtest.bench.processes import ROOT
from loadtest.bench.tables import table
from loadtest.servers import Server, start_valkey
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.store.client.connection import Connection, connect
from tracker.store.schema.keys import MAX_SHARDS
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.codec import PeerUpdate
from tracker.store.swarms.rules import SwarmRules

SECONDS, GIGABYTE = 1890, 1e9
"""Between two announces of a peer, with the default interval and its spread."""
CHURN, REWRITE, LARGE_SWARMS = 1.33, 2, 1.1
"""The server's memory by what is in it: what churn leaves, the copy while the append-only file is rewritten, and
shards with larger swarms than others."""
HALF_LOAD, STORE_SECONDS, PRIVATE = 0.5, 50e-6, 1.4
"""The share of a core to plan with, the store's CPU time for an announce, and how many times that a private one
takes."""
_PEERS, _PER_TORRENT, _PER_USER, _USERS, _BATCH, _SHARDS = 20_000, 20, 10, 2_000, 500, (2, 10)
_EVERY = 20


@dataclass(frozen=True, slots=True)
class Bytes:
    """Memory of a peer that has just joined a torrent, of a peer that announced twice more, of a user, of the user's
    copy in each of the shards where the user has been, and of a registered torrent without peers."""

    fresh: float
    fresh_private: float
    public: float
    private: float
    user: float
    copy: float
    torrent: float


@dataclass(frozen=True, slots=True)
class Plan:
    peers: int
    users: int
    memory: int
    """Gigabytes of a node."""


PLANS = [
    Plan(peers, users, memory)
    for peers in (1_000_000, 10_000_000, 100_000_000)
    for users in (0, 100_000)
    for memory in (16, 48)
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, help="one tracker of your own, instead of the rows of the page")
    parser.add_argument("--users", type=int, default=0, help="users of a private tracker (0: a public one)")
    parser.add_argument("--memory", type=int, default=16, metavar="GB", help="memory of a node (16)")
    parser.add_argument("--write", action="store_true", help="write docs/sizing.md")
    options = parser.parse_args()
    plans = [Plan(options.peers, options.users, options.memory)] if options.peers else PLANS
    costs = asyncio.run(measure())
    public, private = [asyncio.run(fresh_by_key(rules, _PEERS, _EVERY)) for rules in (SwarmRules(), WITHOUT_RULES)]
    parts = {"keys": keys_as_markdown(costs, public, private), "sizing": as_markdown(costs, plans)}
    for name, text in parts.items():
        print(text)
        if options.write:
            page.write(name, text, ROOT / "docs" / "sizing.md")


def keys_as_markdown(costs: Bytes, public: dict[str, float], private: dict[str, float]) -> str:
    """Where the bytes of a fresh peer are."""
    sizes = [(f"`{kind}`", public.get(kind, 0), size) for kind, size in private.items() if size >= 5]
    rest = costs.fresh - sum(size for _, size, _ in sizes), costs.fresh_private - sum(size for _, _, size in sizes)
    sizes.append(("the server's hash tables of all keys, scripts, small keys", *rest))
    sizes.append(("together", costs.fresh, costs.fresh_private))
    head = ("bytes of a peer that has just joined", "public", "private")
    return table(head, [(kind, f"{of_public:.0f}", f"{of_private:.0f}") for kind, of_public, of_private in sizes])


def as_markdown(costs: Bytes, plans: list[Plan]) -> str:
    measured = (
        f"A peer that has just joined takes {costs.fresh:,.0f} bytes, "
        f"on a private tracker {costs.fresh_private:,.0f}.\n"
        f"After two more announces it takes {costs.public:,.0f} and {costs.private:,.0f}.\nA user takes "
        f"{costs.user:,.0f} bytes, and {costs.copy:,.0f} in each shard of its torrents.\n"
        f"A registered torrent takes {costs.torrent:,.0f} bytes."
    )
    head = ("peers", "users", "memory of a node", "nodes with slots", "shards", "memory of the fullest node, filled")
    return f"{measured}\n\n{table(head, [_row(costs, plan) for plan in plans])}"


def _row(costs: Bytes, plan: Plan) -> list[str]:
    nodes, shards = needed(costs, plan)
    return [
        f"{plan.peers:,}",
        f"{plan.users:,}" if plan.users else "public",
        f"{plan.memory} GB",
        "1: one store" if nodes == 1 else f"{nodes}",
        f"{shards}",
        f"{fullest(costs, plan, nodes, shards) / GIGABYTE:.1f} GB",
    ]


def needed(costs: Bytes, plan: Plan) -> tuple[int, int]:
    """The fewest nodes whose fullest one carries its shards, and the number of shards; a cluster has three at least."""
    for nodes in (1, *range(3, MAX_SHARDS + 1)):
        shards = 1 if nodes == 1 else min(MAX_SHARDS, 2 ** math.ceil(math.log2(8 * nodes)))
        share = math.ceil(shards / nodes) / shards * (1 if nodes == 1 else LARGE_SWARMS)
        cores = plan.peers / SECONDS * STORE_SECONDS * share * (PRIVATE if plan.users else 1)
        room = plan.memory * GIGABYTE / REWRITE
        if cores <= HALF_LOAD and fullest(costs, plan, nodes, shards) <= room:
            return nodes, shards
    raise ValueError(f"{plan.peers:,} peers need more than {MAX_SHARDS} nodes of {plan.memory} GB")


def fullest(costs: Bytes, plan: Plan, nodes: int, shards: int) -> float:
    """Bytes of the fullest node's server. The main prefix and its users are counted in. A user has peers on equally
    many torrents, which lie in any shards."""
    held = math.ceil(shards / nodes)
    peer = costs.private if plan.users else costs.public
    peers = plan.peers * held / shards * (1 if nodes == 1 else LARGE_SWARMS)
    torrents = plan.peers / plan.users if plan.users else 0
    copies = costs.copy * held * (1 - (1 - 1 / shards) ** torrents) if shards > 1 else 0
    return CHURN * ((peer + costs.torrent / _PER_TORRENT) * peers + plan.users * (costs.user + copies))


async def measure() -> Bytes:
    (torrent, fresh, public), (_, fresh_private, private) = [
        await _of_a_peer(rules) for rules in (SwarmRules(), WITHOUT_RULES)
    ]
    few, many = [await _of_a_user(shards) for shards in _SHARDS]
    copy = (many - few) / (_SHARDS[1] - _SHARDS[0])
    return Bytes(fresh, fresh_private, public, private, few - copy * _SHARDS[0], copy, torrent)


async def _of_a_peer(rules: SwarmRules) -> tuple[float, float, float]:
    """Bytes of a torrent, of a peer after its join, and after it uploaded and was idle. They include what the server
    keeps of the scripts. Each user has ten peers, in as many torrents."""
    async with _store(rules) as (store, _), asyncio.TaskGroup() as tasks:
        batches = tasks.create_task(store.swarms.run())
        await _add_users(store, rules, _PEERS)
        empty, found = await _used(store), []
        await _add_torrents(store, _PEERS)
        before = await _used(store)
        for event, moved in (("s", 0), ("u", 2**20), ("u", 2**20)):
            await _announce(store, rules, _PEERS, event, moved)
            found.append((await _used(store) - before) / _PEERS)
        batches.cancel()
    return (before - empty) * _PER_TORRENT / _PEERS, found[0], found[-1]


async def fresh_by_key(rules: SwarmRules, peers: int, every: int) -> dict[str, float]:
    """MEMORY USAGE per peer that has just joined, by kind of key, without what users and torrents took before; of one
    key in ``every``."""
    async with _store(rules) as (store, server), asyncio.TaskGroup() as tasks:
        batches = tasks.create_task(store.swarms.run())
        await _add_users(store, rules, peers)
        with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
            await _add_torrents(store, peers)
            before = memory.by_key_kind(client, peers, every)
            await _announce(store, rules, peers, "s", 0)
            found = memory.by_key_kind(client, peers, every)
        batches.cancel()
    return {kind: size - before.get(kind, 0) for kind, size in found.items()}


async def _add_users(store: Store, rules: SwarmRules, peers: int) -> None:
    if rules.accounts != "off":
        for number in range(peers // _PER_USER):
            await store.users.add(str(number + 1), _passkey(number))


async def _add_torrents(store: Store, peers: int) -> None:
    for torrent in range(peers // _PER_TORRENT):
        await store.torrents.add(_info_hash(torrent), {})


async def _announce(store: Store, rules: SwarmRules, peers: int, event: str, moved: int) -> None:
    users = 0 if rules.accounts == "off" else peers // _PER_USER
    for first in range(0, peers, _BATCH):
        updates = [_update(number, event, moved, users) for number in range(first, min(first + _BATCH, peers))]
        await asyncio.gather(*map(store.swarms.announce, updates))


async def _of_a_user(shards: int) -> float:
    async with _store(WITHOUT_RULES, shards) as (store, _):
        before = await _used(store)
        for number in range(_USERS):
            await store.users.add(str(number + 1), _passkey(number), name=f"user {number}", upload_multiplier="1.5")
        for shard in store.shards:
            await store.user_copies.bring(shard, [_passkey(number) for number in range(_USERS)])
        return (await _used(store) - before) / _USERS


@asynccontextmanager
async def _store(rules: SwarmRules, shards: int = 1) -> AsyncIterator[tuple[Store, Server]]:
    with tempfile.TemporaryDirectory(prefix="sizing-") as name:
        server = start_valkey(Path(name))
        connection = Connection(connect(server.url, connect_timeout=10, timeout=10))
        try:
            yield Store(connection, "t:", StoreOptions(rules=rules, shards=shards)), server
        finally:
            await connection.close()
            server.stop()


async def _used(store: Store) -> int:
    text = await store.connection.command("INFO", "memory")
    return int(text.partition(b"used_memory:")[2].split()[0])


def _update(number: int, event: str, moved: int, users: int) -> PeerUpdate:
    return PeerUpdate(
        info_hash=_info_hash(number // _PER_TORRENT),
        peer_id=PeerId(b"-XX0001-" + number.to_bytes(12, "big")),
        event=event.encode(),
        uploaded=Digits(b"%d" % moved),
        downloaded=Digits(b"0"),
        bytes_left=Digits(b"0"),
        endpoint=Endpoint(b"\x0b" + number.to_bytes(3, "big") + b"\x1a\xe1"),
        peers_wanted=0,
        key=b"\xff" + number.to_bytes(7, "big"),
        passkey=_passkey(number % users) if users else "",
        timeout_seconds=2700,
        random=number,
        form=0,
        unbounded=False,
    )


def _info_hash(torrent: int) -> InfoHash:
    return InfoHash((torrent + 1).to_bytes(20, "little"))


def _passkey(number: int) -> str:
    return f"{number:040}"


if __name__ == "__main__":
    main()
