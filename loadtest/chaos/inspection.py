"""Checks after a fault: acknowledged announces are stored, departed peers are gone, and the store is consistent."""

import asyncio
import re
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from operator import sub
from typing import Any

from loadtest.chaos.environment import PREFIX, REAP_SECONDS, Environment
from loadtest.clients.load import Load, Peer
from loadtest.invariants import check_invariants
from tracker.bittorrent import InfoHash, PeerId
from tracker.store.schema.keys import Keys

KEYS = Keys(PREFIX)
_QUIET_SECONDS = 5.0
_LOG_ERRORS = re.compile(r"Traceback|internal error|Unclosed|never retrieved|never awaited")


@dataclass(slots=True)
class Findings:
    """``complaints`` are the failed checks; the rest are measurements."""

    complaints: list[str] = field(default_factory=list)
    refused: int = 0
    closed: int = 0
    outage_seconds: float = 0.0
    """The longest time without any answer."""
    slowest_seconds: float = 0.0
    lost: int = 0
    healed_seconds: float = 0.0
    settled_seconds: float = 0.0
    peers: int = 0


def clients_view(load: Load, fault: float, findings: Findings) -> None:
    """Evaluates the results of the clients since ``fault`` (time.monotonic)."""
    since = [result for result in load.results if result.at >= fault]
    kinds = Counter(result.kind for result in since)
    findings.refused, findings.closed = kinds["refused"], kinds["closed"] + kinds["unreachable"]
    bad = [result for result in load.results if result.kind in ("invalid", "timed out")]
    findings.complaints += sorted({f"clients got {result.kind}: {result.detail}" for result in bad})
    early = [result for result in load.results if result.at < fault and result.kind != "answered"]
    if early:
        findings.complaints.append(f"{len(early)} announces failed before the fault: {early[0].detail}")
    moments = [fault, *sorted(result.at for result in since if result.kind == "answered")]
    findings.outage_seconds = max(map(sub, moments[1:], moments), default=time.monotonic() - fault)
    findings.slowest_seconds = max((result.at - result.sent for result in since), default=0.0)


async def missing_announces(redis: Any, load: Load) -> int:
    """The number of answered announces that are not in the store: joins and stops that are not in its change feed, and
    other announces of peers that still announce. Peers report how many announces were answered, as uploaded bytes."""
    recorded = Counter(
        bytes.fromhex(fields[b"info_hash"].decode())
        for _, fields in await redis.xrange(KEYS.changes())
        if fields[b"change"] in (b"joined", b"stopped")
    )
    missing = (load.acknowledged - recorded).total()
    for peer in load.active.values():
        if torrent_id := await redis.get(KEYS.info_hash(InfoHash(peer.info_hash))):
            stored = await redis.hget(KEYS.peer(torrent_id.decode(), PeerId(peer.peer_id)), "uploaded")
            missing += max(0, peer.answered - 1 - int(stored or 0))
    return missing


async def members_of(redis: Any, info_hash: bytes) -> set[bytes]:
    listed = await redis.smembers(KEYS.swarm_peers(InfoHash(info_hash)))
    return {bytes.fromhex(member.decode()) for member in listed}


async def settled(redis: Any, load: Load, findings: Findings, seconds: float) -> None:
    """Waits up to ``seconds`` until the swarms contain exactly the announcing peers. None joins or leaves meanwhile."""
    began = time.monotonic()
    expected: dict[bytes, set[bytes]] = {info_hash: set() for info_hash in load.single_announces}
    for peer in load.active.values():
        expected.setdefault(peer.info_hash, set()).add(peer.peer_id)
    while True:
        found = {info_hash: await members_of(redis, info_hash) for info_hash in expected}
        findings.settled_seconds = time.monotonic() - began
        if found == expected:
            break
        if findings.settled_seconds > seconds:
            stale = sum(len(found[info_hash] - expected[info_hash]) for info_hash in expected)
            lost = sum(len(expected[info_hash] - found[info_hash]) for info_hash in expected)
            findings.complaints.append(
                f"after {seconds:g} s {stale} departed peers are listed, {lost} active ones are missing"
            )
            break
        await asyncio.sleep(0.1)
    findings.peers = sum(map(len, found.values()))


async def quiet_store(redis: Any, findings: Findings) -> None:
    """Checks the store's consistency (row T19) while no client announces. The global counts may be a second late."""
    end = time.monotonic() + _QUIET_SECONDS
    while True:
        try:
            active = await check_invariants(redis, KEYS)
        except AssertionError as error:
            if time.monotonic() > end:
                line = traceback.extract_tb(error.__traceback__)[-1].line
                findings.complaints.append(f"an invariant is broken: {line} {str(error)[:200]}")
                return
            await asyncio.sleep(0.2)
        else:
            if active != findings.peers:
                findings.complaints.append(f"{active} peers are active, {findings.peers} are in swarms")
            break
    repairs = int(await redis.get(KEYS.stat("repairs")) or 0)
    if repairs:
        findings.complaints.append(f"the sweep made {repairs} repairs")


async def wrongly_reaped(redis: Any, load: Load) -> int:
    """The number of peers that were reaped although they announced in time."""
    wrong = 0
    for peer in load.active.values():
        if peer.max_pause < REAP_SECONDS and await _rejoined(redis, peer):
            wrong += 1
    return wrong


async def _rejoined(redis: Any, peer: Peer) -> bool:
    torrent_id = await redis.get(KEYS.info_hash(InfoHash(peer.info_hash)))
    key = KEYS.peer(torrent_id.decode(), PeerId(peer.peer_id))
    first = await redis.hget(key, "first_announce")
    # If a clock was set back meanwhile, first_announce is earlier than the join.
    return first is not None and not -60 < int(first) - peer.joined_epoch <= 1


def read_logs(environment: Environment, findings: Findings) -> None:
    for tracker in environment.trackers:
        if found := _LOG_ERRORS.search(tracker.log):
            line = tracker.log[max(0, found.start() - 200) : found.end() + 3000]
            findings.complaints.append(f"the log contains {found[0]!r}: …{line}…")
