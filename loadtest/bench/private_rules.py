"""Instructions of the store for announces: of a public tracker, of a private one without further rules, and of one
with all of them: `python -m loadtest.bench.private_rules`.

The store runs under valgrind's callgrind, whose counts do not depend on the load of the machine. All three get the same
announces, in full calls of the script and one by one; only those of users have a passkey. Each user has one peer in a
torrent, and the announces of a call are for different torrents: those of one torrent share what a call reads of it.

All rules are: multipliers for all users, of the user and of the torrent, a freeleech token for another torrent, maximum
peers and downloads, hit-and-runs by seed time, share and ratio with a grace period, and the change feed. Checks of
which peers are connectable are not made by announces.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path

from loadtest.bench.counting_store import START_SECONDS, begin_count, counting_store, counts
from loadtest.bench.loader import BenchError
from loadtest.bench.tables import table
from loadtest.bench.targets import find
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.codec import Admitted, PeerUpdate
from tracker.store.swarms.rules import SwarmRules
from tracker.store.swarms.swarms import MAX_BATCH

MIX = {"idle": 0.70, "moving": 0.20, "join": 0.05, "completed": 0.01, "stop": 0.04}
"""The share of each kind among the announces of a tracker. The first two are regular: idle peers have moved nothing
since their last announces, moving ones have."""
WITHOUT_RULES = SwarmRules(
    accounts="required", open=False, peer_memory=2_592_000, hnr_min_bytes=2**20, hnr_threshold=259_200
)
ALL_RULES = replace(
    WITHOUT_RULES,
    hnr_by_seed_time=True,
    hnr_grace=86_400,
    hnr_min_share=0.1,
    hnr_ratio=1.0,
    max_changes=2000,
    max_peers=3,
    max_downloads=20,
)
TRACKERS = {"public": SwarmRules(), "private": WITHOUT_RULES, "private, all rules": ALL_RULES}
_USERS, _MEASURED, _TORRENTS, _GROUPS = 8 * MAX_BATCH, 2 * MAX_BATCH, MAX_BATCH, 20
ANNOUNCES = {"idle": _MEASURED, "moving": _MEASURED, "join": _MEASURED, "completed": _MEASURED // 2, "stop": _MEASURED}
"""How many announces of each kind are measured."""
_SIZE = 2**30
_START, _END = 1_800_000_000, 1_900_000_000


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not find("valgrind"):
        sys.exit("valgrind is missing: apt install valgrind")
    for alone in (False, True):
        print(as_markdown(measure(alone), alone) + "\n")


@cache
def measure(alone: bool = False) -> dict[str, dict[str, float]]:
    """Instructions of the store per announce, by tracker and kind."""
    return {tracker: instructions(rules, alone) for tracker, rules in TRACKERS.items()}


def as_markdown(costs: Mapping[str, Mapping[str, float]], alone: bool) -> str:
    """Thousands of instructions per announce, and how many times those of the public tracker."""
    public, *private = costs
    head = ["", *costs, *(f"{tracker} / {public}" for tracker in private)]
    rows = [
        [
            kind,
            *(f"{cost[kind] / 1000:.0f}" for cost in costs.values()),
            *(f"{costs[tracker][kind] / costs[public][kind]:.2f}" for tracker in private),
        ]
        for kind in (*MIX, "mix")
    ]
    return f"### {1 if alone else MAX_BATCH} per call, 1,000 instructions\n\n{table(head, rows)}"


def instructions(rules: SwarmRules, alone: bool = False) -> dict[str, float]:
    """Instructions of the store per announce, by kind and for the mix."""
    with tempfile.TemporaryDirectory(prefix="rules-") as name:
        directory = Path(name)
        with counting_store(directory):
            asyncio.run(_announce_counted(f"unix://{directory}/s", rules, alone))
        totals = list(counts(directory))
    return per_announce(totals[1::2])


def per_announce(costs: Sequence[float]) -> dict[str, float]:
    """The cost of an announce by kind and in the mix, from that of all announces of each kind in the order of MIX."""
    per_kind = {kind: cost / ANNOUNCES[kind] for kind, cost in zip(MIX, costs, strict=True)}
    return {**per_kind, "mix": sum(share * per_kind[kind] for kind, share in MIX.items())}


@dataclass
class _Clock:
    now: float = _START

    def __call__(self) -> float:
        return self.now


async def _announce_counted(url: str, rules: SwarmRules, alone: bool) -> None:
    connection = Connection(connect(url, connect_timeout=START_SECONDS, timeout=START_SECONDS))
    begins = cycle((True, False))

    async def echo() -> None:
        if next(begins):
            await begin_count(connection)
        else:
            await connection.command("ECHO", "")

    try:
        await announce_all(connection, "t:", rules, echo, alone=alone)
    finally:
        await connection.close()


async def announce_all(
    connection: Connection,
    prefix: str,
    rules: SwarmRules,
    measure: Callable[[], Awaitable[None]],
    *,
    alone: bool = False,
) -> None:
    """Makes announces of each kind in the order of MIX. Calls ``measure`` before and after those of each kind."""
    clock = _Clock()
    store = Store(connection, prefix, StoreOptions(rules=rules), clock=clock)
    everyone = range(1, _USERS + _MEASURED + 1)
    present, new = everyone[:_MEASURED], everyone[_USERS:]
    kinds = {
        "idle": [_update(user, "u") for user in present],
        "moving": [_update(user, "u", bytes_left=_SIZE // 2, moved=_SIZE // 2) for user in present],
        "join": [_update(user, "s") for user in new],
        "completed": [_update(user, "c", bytes_left=0, moved=_SIZE) for user in present if user % 2],
        "stop": [_update(user, "x", bytes_left=_SIZE // 2, moved=_SIZE // 2) for user in present],
    }
    async with asyncio.TaskGroup() as tasks:
        batches = tasks.create_task(store.swarms.run())
        users = [] if rules.accounts == "off" else everyone
        await _fill(store, users, with_rules=rules == ALL_RULES)
        await _announce(store, [_update(user, "s") for user in everyone[:_USERS]], alone=False)
        for kind in MIX:
            clock.now += 1800
            await measure()
            await _announce(store, kinds[kind], alone=alone)
            await measure()
        batches.cancel()


async def _fill(store: Store, users: Sequence[int], *, with_rules: bool) -> None:
    """Torrents and users; with rules, each has multipliers, and each user a token for an unknown torrent."""
    for torrent in range(_TORRENTS + 1):
        end, fields = _END + torrent, {"size": str(_SIZE)}
        if with_rules:
            fields |= {"multi_up": f"2 {end}", "multi_dn": f"0.75 {end}"}
        await store.torrents.add(_info_hash(torrent), fields)
    for user in users:
        end = _END + user
        rules: dict[str, str | int] = {
            "upload_multiplier": f"1.5 {end}",
            "download_multiplier": f"0.9 {end}",
            "max_downloads": "50",
            "group": 1 + user % _GROUPS,
        }
        await store.users.add(str(user), _passkey(user))
        if with_rules:
            await store.users.edit(_passkey(user), rules)
            await store.freeleech.give(str(user), str(_TORRENTS + 1), end)
    if with_rules:
        await store.multipliers.set(f"1.25 {_END}", f"0.5 {_END}")
        for group in range(1, _GROUPS + 1):
            await store.groups.save(
                group, {"name": f"group-{group}", "max_downloads": "60", "upload_multiplier": "1.75"}
            )


async def _announce(store: Store, updates: Sequence[PeerUpdate], *, alone: bool) -> None:
    if store.rules.current.accounts == "off":
        updates = [update._replace(passkey="") for update in updates]
    if alone:
        outcomes = [await store.swarms.announce(update) for update in updates]
    else:
        outcomes = await asyncio.gather(*map(store.swarms.announce, updates))
    refused = [outcome for outcome in outcomes if not isinstance(outcome, Admitted)]
    if refused:
        raise BenchError(f"an announce was refused: {refused[0]}")


def _update(user: int, event: str, *, bytes_left: int = _SIZE, moved: int = 0) -> PeerUpdate:
    """An announce of a user's only peer. Every second user seeds; ``moved`` is what a leecher has downloaded."""
    seeds = user % 2 == 0
    return PeerUpdate(
        info_hash=_info_hash(user % _TORRENTS),
        peer_id=PeerId(b"-XX0001-" + user.to_bytes(12, "big")),
        event=event.encode(),
        uploaded=Digits(b"%d" % moved),
        downloaded=Digits(b"0" if seeds else b"%d" % moved),
        bytes_left=Digits(b"0" if seeds else b"%d" % bytes_left),
        endpoint=Endpoint(b"\x0b" + user.to_bytes(3, "big") + b"\x1a\xe1"),
        peers_wanted=0 if event == "x" else 50,
        key=b"12345678",
        passkey=_passkey(user),
        timeout_seconds=2700,
        random=user,
        form=0,
        unbounded=False,
    )


def _info_hash(number: int) -> InfoHash:
    return InfoHash((number + 1).to_bytes(20, "little"))


def _passkey(user: int) -> str:
    return f"{user:020}"


if __name__ == "__main__":
    main()
